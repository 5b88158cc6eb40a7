"""`fedbb flower enrol`: keys and the signed roster of the sites of private runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedbb.cli.common import Json, Quiet, print_json
from fedbb.cli.flower_run import Settings, need_flower
from fedbb.errors import RunError
from fedbb.flower.admin.paths import FederationFolder, SiteFolder
from fedbb.recipes.privacy import need_libraries
from fedbb.recipes.reader import read_recipe


def enrol(
    path: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the federation, or of one site.")
    ],
    recipe: Annotated[
        Path | None,
        typer.Argument(help="Private recipe whose terms go into the roster; not at a site."),
    ] = None,
    settings: Settings = None,
    keys: Annotated[
        bool,
        typer.Option(help="Make the identities of sites here; otherwise each site makes its own."),
    ] = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make identities and sign the roster of a private recipe's sites, where they are missing.

    At a site, make its identity; its public key is sent to the person who enrols the sites.
    """
    need_flower()
    need_libraries("masked")
    from fedbb.secagg.flower.enrolment import enrol as sign_up
    from fedbb.secagg.flower.enrolment import make_identity

    site = SiteFolder(path)
    if site.settings_file.exists():
        pieces = make_identity(site)
    elif recipe is None:
        raise RunError("a roster needs the terms of a recipe: fedbb flower enrol DIR RECIPE")
    else:
        chosen = read_recipe(recipe, settings or [])
        pieces = sign_up(FederationFolder(path), chosen, keys=keys)
    if as_json:
        print_json([{"path": str(p.path), "what": p.what, "made": p.made} for p in pieces])
    elif not quiet:
        for piece in pieces:
            typer.echo(f"{'made' if piece.made else 'kept'}  {piece.path}  {piece.what}")
