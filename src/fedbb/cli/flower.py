"""`fedbb flower`: recipes across real sites on Flower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from fedbb._util.table import Cell, Entry, Table, make_table, to_rich
from fedbb.cli.common import Json, Quiet, echo, print_json, say
from fedbb.cli.flower_run import Settings, join, need_flower, run, up
from fedbb.errors import RunError
from fedbb.flower.admin.paths import FederationFolder, SiteFolder
from fedbb.recipes.privacy import need_libraries
from fedbb.recipes.reader import read_recipe

if TYPE_CHECKING:
    from fedbb.flower.admin.certificates import Piece

app = typer.Typer(help="Run recipes across real sites, on Flower.", no_args_is_help=True)

COLORS = {
    "ok": "green",
    "warn": "yellow",
    "bad": "red",
    "online": "green",
    "offline": "yellow",
    "not registered": "yellow",
    "dismissed": "dim",
    "completed": "green",
    "failed": "red",
}
LONGEST = 1000
"""Most letters of a finding or its advice."""

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
            echo(f"made {place}")
        if not made:
            echo(f"{path} already exists, with {len(folder.sites())} sites")
        echo(f"next: fedbb flower certs {path}")


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
    _print_files(pieces, as_json, quiet)


@app.command("status")
def status(path: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Show the sites that are online, the runs and their progress."""
    need_flower()
    from fedbb.flower.admin.run_monitor import describe

    state = describe(FederationFolder(path))
    if as_json:
        print_json(state)
    elif not quiet:
        console = Console()
        for part in status_parts(state):
            shown = to_rich(part) if isinstance(part, Table) else part
            say(console, shown, wrap=True)


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
        table = findings_table([vars(finding) for finding in findings])
        Console().print(to_rich(table, length=LONGEST))
    if any(finding.level == "bad" for finding in findings):
        raise typer.Exit(1)


@app.command("admit")
def admit(path: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Register the keys of new sites while the server is running."""
    need_flower()
    from fedbb.flower.admin.control import NEW_KEY, Control, dismissed
    from fedbb.flower.admin.control import admit as register

    folder = FederationFolder(path)
    folder.check()
    with Control(folder.listening(), folder.ca) as control:
        names, gone = register(folder, control), dismissed(folder, control)
    if as_json:
        print_json({"admitted": names, "dismissed": gone})
    elif not quiet:
        echo(f"admitted: {', '.join(names) or 'no new site'}")
        for name in gone:
            echo(f"{name} was dismissed; {NEW_KEY.format(folder=path / name)}")


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
    from fedbb.flower.admin.control import dismiss as unregister

    folder = FederationFolder(path)
    folder.check()
    with Control(folder.listening(), folder.ca) as control:
        unregister(control, site)
    if as_json:
        print_json({"dismissed": site})
    elif not quiet:
        echo(f"dismissed: {site}")


@app.command("enrol")
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
    _print_files(pieces, as_json, quiet)


app.command("up")(up)
app.command("join")(join)
app.command("run")(run)


def _print_files(files: Sequence[Piece], as_json: bool, quiet: bool) -> None:
    if as_json:
        print_json([{"path": str(p.path), "what": p.what, "made": p.made} for p in files])
    elif not quiet:
        for file in files:
            echo(f"{'made' if file.made else 'kept'}  {file.path}  {file.what}")


def findings_table(findings: Sequence[dict[str, Any]]) -> Table:
    """Return a row for each finding, its level and its subject, and one for its advice."""
    rows: list[tuple[Entry, ...]] = []
    for finding in findings:
        rows.append((_colored(finding["level"]), finding["subject"], finding["message"]))
        if finding["advice"]:
            rows.append(("", "", Cell(f"→ {finding['advice']}", strong=True)))
    return make_table(("", "", ""), rows, words=3)


def status_parts(state: dict[str, Any]) -> Iterator[Table | str]:
    """Yield the server's address, its sites and its runs."""
    yield f"server {state['server']}"
    sites = [(s["site"], _colored(s["status"]), _moment(s["since"])) for s in state["sites"]]
    yield make_table(("site", "status", "last came online (UTC)"), sites, "Sites", words=3)
    if not state["runs"]:
        yield "no runs yet"
        return
    runs = [
        (
            _moment(entry["begun"])[:16],
            _colored(entry["status"].removeprefix("finished:")),
            f"{entry['done']} of {entry['rounds'] or '?'}",
            f"{entry['bytes_to_sites'] / 1e6:.1f} / {entry['bytes_from_sites'] / 1e6:.1f}",
            Path(entry["folder"]).name,
        )
        for entry in state["runs"]
    ]
    head = ("begun (UTC)", "status", "rounds", "MB to / from", "folder")
    yield make_table(head, runs, "Runs, newest first", words=5)
    if state["runs"][0]["details"]:
        yield f"the newest run ended with: {state['runs'][0]['details']}"


def _colored(word: str) -> Cell:
    return Cell(word, color=COLORS.get(word, ""))


def _moment(text: str) -> str:
    """Return an ISO date and time without its fractions."""
    return text[:19].replace("T", " ") or "–"
