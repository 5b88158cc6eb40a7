"""`fedbb flower`: recipes across real sites on Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedbb.cli.common import Json, Quiet, print_json
from fedbb.cli.flower_enrol import enrol
from fedbb.cli.flower_run import need_flower, run
from fedbb.cli.flower_screen import findings_table, status_tables
from fedbb.cli.flower_up import join, up
from fedbb.flower.admin.paths import FederationFolder, SiteFolder

app = typer.Typer(help="Run recipes across real sites, on Flower.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the federation.")]


@app.command("init")
def init(
    path: Folder,
    sites: Annotated[int, typer.Option(min=0, help="Number of sites that get a folder.")] = 3,
    server: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address to which sites connect; localhost:8443."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make the folder of a federation: the app, and a folder for each site with a README.

    Existing files stay unchanged; a larger --sites adds sites.
    """
    need_flower()
    from fedbb.flower.admin.templates import make_federation

    folder = FederationFolder(path)
    made = [str(place) for place in make_federation(folder, sites, server)]
    if as_json:
        print_json({"made": made, "sites": len(folder.sites())})
    elif not quiet:
        for place in made:
            typer.echo(f"made {place}")
        if not made:
            typer.echo(f"{path} already exists, with {len(folder.sites())} sites")
        typer.echo(f"next: fedbb flower certs {path}")


@app.command("certs")
def certs(
    path: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the federation, or of one site.")
    ],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="Further name or address of the server; repeatable."),
    ] = None,
    days: Annotated[
        int, typer.Option(min=1, help="Days for which the server's certificate is valid.")
    ] = 397,
    keys: Annotated[
        bool, typer.Option(help="Make the keys of sites here; otherwise each site makes its own.")
    ] = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make the authority, the server certificate and site keys, where they are missing."""
    need_flower()
    from fedbb.flower.admin.certificates import make_certificates, make_site_key

    site = SiteFolder(path)
    if site.settings_file.exists():
        pieces = make_site_key(site)
    else:
        pieces = make_certificates(
            FederationFolder(path), host or [], days, keys=None if keys else 0
        )
    if as_json:
        print_json([{"path": str(p.path), "what": p.what, "made": p.made} for p in pieces])
    elif not quiet:
        for piece in pieces:
            typer.echo(f"{'made' if piece.made else 'kept'}  {piece.path}  {piece.what}")


@app.command("status")
def status(path: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show the sites that are online, the runs and their progress."""
    need_flower()
    from fedbb.flower.admin.status import describe

    state = describe(FederationFolder(path))
    if as_json:
        print_json(state)
    elif not quiet:
        console = Console()
        for part in status_tables(state):
            console.print(part)


@app.command("doctor")
def doctor(
    path: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the federation, or of one site.")
    ],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check the folder of a federation or site and give advice; exit 1 if a check fails."""
    need_flower()
    from fedbb.flower.admin.doctor import examine

    findings = examine(path)
    if as_json:
        print_json([vars(finding) for finding in findings])
    elif not quiet:
        Console().print(findings_table([vars(finding) for finding in findings]))
    if any(finding.level == "bad" for finding in findings):
        raise typer.Exit(1)


@app.command("admit")
def admit(path: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Register the keys of new sites while the server is running."""
    need_flower()
    from fedbb.flower.admin.control import Control
    from fedbb.flower.admin.membership import NEW_KEY, dismissed
    from fedbb.flower.admin.membership import admit as register

    folder = FederationFolder(path)
    folder.check()
    with Control(folder.listening(), folder.ca) as control:
        names, gone = register(folder, control), dismissed(folder, control)
    if as_json:
        print_json({"admitted": names, "dismissed": gone})
    elif not quiet:
        typer.echo(f"admitted: {', '.join(names) or 'no new site'}")
        for name in gone:
            typer.echo(f"{name} was dismissed; {NEW_KEY.format(folder=path / name)}")


@app.command("dismiss")
def dismiss(
    path: Folder,
    site: Annotated[str, typer.Argument(help="Name of the site, such as site-2.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Remove a site from the federation immediately; its key is never accepted again."""
    need_flower()
    from fedbb.flower.admin.control import Control
    from fedbb.flower.admin.membership import dismiss as unregister

    folder = FederationFolder(path)
    folder.check()
    with Control(folder.listening(), folder.ca) as control:
        unregister(control, site)
    if as_json:
        print_json({"dismissed": site})
    elif not quiet:
        typer.echo(f"dismissed: {site}")


app.command("enrol")(enrol)
app.command("up")(up)
app.command("join")(join)
app.command("run")(run)
