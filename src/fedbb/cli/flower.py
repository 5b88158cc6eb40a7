"""`fedbb flower`: recipes across real sites on Flower."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from fedbb._util.files import writing
from fedbb._util.table import Cell, Entry, Table, make_table, to_rich
from fedbb._util.text import counted
from fedbb.cli.common import Json, Quiet, echo, print_json, say, stoppable
from fedbb.cli.run import resolve
from fedbb.cli.screens import RunScreen, open_screen
from fedbb.errors import RunError
from fedbb.flower.admin.paths import FederationFolder, SiteFolder
from fedbb.recipes.check import bind_teacher, check_recipe
from fedbb.recipes.privacy import need_libraries
from fedbb.recipes.reader import read_recipe
from fedbb.recipes.spec import Recipe
from fedbb.runs.folder import Record, RunFolder, check_foreign

if TYPE_CHECKING:
    from fedbb.flower.admin.certificates import Piece
    from fedbb.flower.admin.local import LocalFederation

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
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Run folder; DIR/runs/<name> if not given.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as in local.lr=0.02."),
]
Score = Annotated[
    Literal["server", "sites"] | None,
    typer.Option(help="Who scores: the server on the recipe's data, or each site on its own data."),
]
FAILED = "ServerApp failed with exception: "


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
    is_new = not path.exists()
    try:
        with writing(path):
            made = [str(place) for place in make_federation(folder, sites, server)]
    except RunError:
        if is_new:  # half a federation would be taken for another folder the next time
            shutil.rmtree(path, ignore_errors=True)
        raise
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


def run(
    recipe: Annotated[
        Path, typer.Argument(help="Recipe (.toml or .json), or with --resume a run folder.")
    ],
    path: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Folder of a running federation.")
    ] = Path(),
    out: Out = None,
    settings: Settings = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue an unfinished run; the results are bit-identical."),
    ] = False,
    score: Score = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a recipe across the sites, on the machine of the server.

    Each finished round is saved; Ctrl-C (exit 130) loses only the current round. Exit 1 if the
    run failed.
    """
    need_flower()
    federation = FederationFolder(path)
    federation.check()
    chosen, folder = resolve(recipe, settings or [], out, resume, federation.runs)
    if not resume:
        _check_sites(path, len(federation.sites()), chosen)
    carry_out(federation, chosen, folder, resume=resume, score=score, as_json=as_json, quiet=quiet)


def carry_out(
    federation: FederationFolder,
    recipe: Recipe,
    folder: Path,
    *,
    resume: bool,
    score: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Start a recipe on a federation and show its rounds until it ends."""
    from fedbb.flower.admin.control import Control, node_keys
    from fedbb.flower.admin.run_monitor import RunMonitor, run_config

    _check(recipe, folder, resume)
    recipe = bind_teacher(recipe)
    keys = _keys(federation, recipe) | node_keys(federation)
    with (
        Control(federation.listening(), federation.ca) as control,
        open_screen(recipe, folder, as_json=as_json, quiet=quiet) as screen,
        stoppable(),
    ):
        wanted = score or _score_of(folder, resume)
        config = {**run_config(recipe, folder, resume=resume, score=wanted), **keys}
        monitor = RunMonitor(control, control.start(federation.app, config), folder)
        try:
            for event in monitor:
                _show(event, screen)
        except KeyboardInterrupt:
            monitor.stop()
            screen.message(_stopped(RunFolder(folder), recipe, federation))
            raise typer.Exit(130) from None
        assert monitor.ending is not None
        if monitor.ending.status != "finished:completed":
            details = monitor.ending.details or monitor.ending.status
            screen.message(f"the run failed: {details.removeprefix(FAILED)}")
            raise typer.Exit(1)
        screen.finish(RunFolder(folder).read_json("summary.json"))
    if as_json:
        print_json(RunFolder(folder).read_json("summary.json"), indent=None)


def _check_sites(path: Path, sites: int, recipe: Recipe) -> None:
    """Refuse a recipe for more sites than the federation has; the server would wait for them."""
    clients = recipe.data.partition.clients or 0
    if clients > sites:
        raise RunError(
            f"the recipe has {clients} clients, but {path} has {sites} site"
            f"{'' if sites == 1 else 's'}: add --set data.partition.clients={sites}, or make more "
            f"sites with --sites {clients} of `fedbb flower init` or `up`"
        )


def _stopped(folder: RunFolder, recipe: Recipe, federation: FederationFolder) -> str:
    """Return what an interrupted run left, and how to continue it."""
    if not folder.is_run():
        return "stopped before the first round; nothing is kept, start the run again"
    reached = "stopped before the first round"
    if folder.has_rounds():
        done = len(folder.records())
        reached = f"stopped after round {done} of {recipe.rounds.number}, which is saved"
    return f"{reached}; continue with: fedbb flower run --resume {folder.path} {federation.path}"


def need_flower() -> None:
    """Raise RunError with the name of the missing extra, before it is imported."""
    for package in ("flwr", "cryptography"):
        if find_spec(package) is None:
            raise RunError(
                f"`fedbb flower` needs the package {package}, which is not installed: "
                'pip install "fedbb[flower]"'
            )


def _check(recipe: Recipe, folder: Path, resume: bool) -> None:
    """Raise the errors that the server would raise a minute later."""
    check_recipe(recipe)
    check_foreign(folder)
    if RunFolder(folder).is_run() and not resume:
        raise RunError(
            f"{folder} already holds a run; continue it with --resume, or choose another"
        )


def _keys(federation: FederationFolder, recipe: Recipe) -> dict[str, str]:
    if recipe.privacy == "none":
        return {}
    # What private runs need comes with an extra.
    from fedbb.secagg.flower.enrolment import keys_for

    return keys_for(federation, recipe)


def _score_of(folder: Path, resume: bool) -> str:
    """Return who scores by default: as before in a resumed run, the server in a new one."""
    from fedbb.flower.app.run_metadata import load_run_metadata

    return load_run_metadata(RunFolder(folder)).score if resume else "server"


def _show(event: Record | str, screen: RunScreen) -> None:
    if isinstance(event, str):
        screen.message(event)
        return
    for failure in event.get("absent", ()):
        screen.message(
            f"round {event['round']}: client {failure['client']} did not count: {failure['reason']}"
        )
    screen.round(event)


POLL_SECONDS = 0.5


def up(
    path: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the federation; created if missing.")
    ],
    sites: Annotated[
        int | None,
        typer.Option(
            min=0, help="Number of sites to run on this machine; all with a folder, or 3."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port; by default that of federation.toml.")
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option("--run", metavar="RECIPE", help="Run this recipe, then stop everything."),
    ] = None,
    out: Out = None,
    settings: Settings = None,
    score: Score = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Start the server, with TLS and site keys, and sites on this machine, until Ctrl-C.

    `--sites 0` starts the server alone, for sites that join from other machines. All processes
    end with this command, however it ends.
    """
    need_flower()
    from fedbb.flower.admin.local import LocalFederation

    folder = FederationFolder(path)
    chosen = resolve(recipe, settings or [], out, False, folder.runs) if recipe else None
    number = sites if sites is not None else len(folder.sites()) or 3
    if chosen is not None:
        _check_sites(path, max(number, len(folder.sites())), chosen[0])
    with stoppable(), ExitStack() as stack:
        try:
            wanted = port or _port(folder)
            _print(f"starting the server at {host}:{wanted} …", as_json or quiet)
            federation = stack.enter_context(LocalFederation(path, number, host=host, port=wanted))
            _print_ready(federation, as_json, quiet)
            if chosen is None:
                _stay(federation, as_json or quiet)
            else:
                carry_out(folder, *chosen, resume=False, score=score, as_json=as_json, quiet=quiet)
        except KeyboardInterrupt:
            _print("ending …", as_json or quiet)


def join(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of this site.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Connect a site to the server and do its work until Ctrl-C."""
    need_flower()
    from fedbb.flower.admin.node import join as keep_running

    site = SiteFolder(path)
    if not site.settings_file.exists():
        raise RunError(f"{path} is not the folder of a site; it has no site.toml")
    with stoppable():
        try:
            for message in keep_running(site):
                if as_json:
                    print_json({"time": time.time(), "message": message}, indent=None)
                else:
                    _print(f"{time.strftime('%H:%M:%S')}  {message}", quiet)
        except KeyboardInterrupt:
            _print("ended", as_json or quiet)


def _port(folder: FederationFolder) -> int:
    from fedbb.flower.admin.paths import SERVER, split_address

    if folder.is_made():
        return folder.dialed()[1]
    return split_address(SERVER, folder.path)[1]


def _print_ready(federation: LocalFederation, as_json: bool, quiet: bool) -> None:
    names = [node.name for node in federation.nodes]
    if as_json:
        print_json({"server": federation.address, "online": names}, indent=None)
        return
    admitted = len(federation.control.nodes())
    sites = counted(len(names) or admitted, "site")
    what = f"{sites} online" if names else f"{sites} may join"
    _print(f"ready at {federation.address}: {what}; Ctrl-C ends it", quiet)


def _stay(federation: LocalFederation, quiet: bool) -> None:
    """Report nodes that end, and raise RunError when the server ends."""
    gone: set[str] = set()
    while federation.superlink.is_running():
        for node in federation.nodes:
            if not node.program.is_running() and node.name not in gone:
                gone.add(node.name)
                _print(f"the node of {node.name} has ended; see {node.program.log}", quiet)
        time.sleep(POLL_SECONDS)
    raise RunError(f"the server has ended; see {federation.superlink.log}")


def _print(message: str, quiet: bool) -> None:
    if not quiet:
        say(Console(), message)


app.command("up")(up)
app.command("join")(join)
app.command("run")(run)
