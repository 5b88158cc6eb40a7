"""`fedbb audit`: what a run's server saw of its clients, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from fedbb._util.table import make_table, to_rich
from fedbb.cli.common import Json, Quiet, print_json, say
from fedbb.report.audit import EXAMPLES, Audit, Seen, audit_run

LONGEST = 2000
"""Most letters of a value; that of many clients is a list of them."""


def audit(
    path: Annotated[Path, typer.Argument(help="A run folder.")],
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List what the server of a run saw of its clients, and what can be inferred from it."""
    found = audit_run(path)
    if as_json:
        print_json(found.as_json())
    elif not quiet:
        console = Console()
        for part in _screen(found):
            say(console, part, wrap=True)


def _screen(found: Audit) -> Iterator[RenderableType]:
    yield f'{found.run}, privacy = "{found.privacy}"'
    if found.seen:
        yield "\nThe server saw:"
        yield _table(found.seen)
    if found.follows:
        yield "From that follows:"
        yield from (f"- {text}" for text in found.follows)
        yield ""
    yield from found.unseen


def _table(seen: tuple[Seen, ...]) -> RenderableType:
    """Return a row for each value, or for all values of one kind that rounds brought."""
    found: dict[tuple[str, str], list[Seen]] = {}
    for value in seen:
        found.setdefault((value.whose, value.what), []).append(value)
    rows = [
        (whose, what, _when(values), _values([value.value for value in values]))
        for (whose, what), values in found.items()
    ]
    return to_rich(make_table(("of whom", "what", "when", "value"), rows, words=4), length=LONGEST)


def _when(values: list[Seen]) -> str:
    first, last = values[0].when, values[-1].when
    if len(values) == 1:
        return first
    return f"{first.replace('round', 'rounds')} to {last.removeprefix('round ')}"


def _values(values: list[Any]) -> str:
    if all(value == values[0] for value in values):
        return _text(values[0])
    more = len(values) - EXAMPLES
    return ", ".join(_text(value) for value in values[:EXAMPLES]) + (
        f" … ({len(values)} in all)" if more > 0 else ""
    )


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return "clients " + " ".join(str(entry) for entry in value)
    text = str(value)
    return f"{text[:16]}…" if len(text) == 64 else text
