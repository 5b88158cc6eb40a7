"""`fedbb compare`: two runs or groups, shown on the terminal or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Annotated

import numpy as np
import typer
from rich.console import Console, RenderableType
from rich.text import Text

from fedbb._util.files import finite_or_none
from fedbb._util.table import Cell, Column, Entry, elide, make_table, to_rich
from fedbb.analysis.measures import effective_clients
from fedbb.cli.common import Json, Quiet, print_json, say
from fedbb.cli.screens import COLUMNS, percent
from fedbb.report.compare import (
    ClientWeights,
    GroupComparison,
    Score,
    Setting,
    compare_groups,
    count_gains,
    notes,
    verdict,
)
from fedbb.report.compare import as_json as plain
from fedbb.report.groups import MethodRuns, read_group
from fedbb.report.statistics import Verdict
from fedbb.report.text import (
    data_title,
    interval_text,
    method_title,
    metric_title,
    score_text,
    signed,
)

ROWS = 6
"""Classes, and clients, shown of either end."""
BAR = 10
WIDEST = 34
LONGEST = 500
"""Most letters of a cell, and of a line outside of tables."""


def screenful(found: GroupComparison) -> Iterator[RenderableType]:
    """Yield the parts of the screen from top to bottom."""
    yield _group("A", found.a)
    yield _group("B", found.b)
    yield Text(f"\n{verdict(found)}", style="bold")
    yield from _settings(found.settings)
    yield from _scores(found)
    if found.classes:
        yield from _classes(found)
    if found.clients:
        yield from _clients(found)
    for number, note in enumerate(notes(found)):
        yield Text("\n" * (number == 0) + elide(f"note: {note}", LONGEST))


def _group(name: str, group: MethodRuns) -> Text:
    first = group.runs[0]
    title = f"{method_title(first.recipe.method.name)} on {data_title(first)}"
    seeds = f"seed{'s' if len(group.runs) > 1 else ''} {_seeds(group.seeds)}"
    return Text.assemble(
        (f"{name}  ", "bold"),
        elide(f"{title}; {seeds}", LONGEST),
        "\n   ",
        elide(group.label, LONGEST),
    )


def _settings(settings: Sequence[Setting]) -> Iterator[RenderableType]:
    if not settings:
        yield _title("No setting differs but the seed")
        return
    yield _title("Settings that differ")
    rows = [(line.key, *map(_value, (line.a, line.b))) for line in settings]
    yield _table(("setting", "A", "B"), rows, words=3)


def _value(value: object) -> Entry:
    return None if value is None else str(value)


def _scores(found: GroupComparison) -> Iterator[RenderableType]:
    yield _title("Test scores, mean ± sd over seeds; differences over pairs of equal seeds")
    head = ("metric", "round", "A", "B", "B − A", "95 % interval", "B higher")
    rows = [
        (
            COLUMNS.get(line.metric, line.metric) if line.which == "final" else "",
            line.which,
            score_text(line.a),
            score_text(line.b),
            _judged(line),
            interval_text(line.paired.interval, 100),
            f"{line.paired.ahead} of {len(line.paired.seeds)}" if line.paired.seeds else None,
        )
        for line in found.scores
    ]
    yield _table(head, rows, words=2)


def _judged(line: Score) -> Cell:
    """Return a difference, colored only where its interval excludes zero."""
    colors = {Verdict.AHEAD: "green", Verdict.BEHIND: "red"}
    return Cell(signed(100 * line.gap), color=colors.get(line.paired.verdict, ""))


def _classes(found: GroupComparison) -> Iterator[RenderableType]:
    count, number = count_gains(found.classes), len(found.classes)
    yield _title(
        f"Classes by {metric_title(found.class_metric)} after the last round: "
        f"{count.won} gain, {count.lost} lose, {number - count.won - count.lost} neither"
    )
    widest = max((abs(line.gap) for line in found.classes if not isnan(line.gap)), default=0)
    rows: list[Sequence[Entry]] = [
        (
            line.name,
            None if isnan(line.cases) else f"{line.cases:,.0f}",
            _share(line.a),
            _share(line.b),
            _colored(signed(100 * line.gap), line.gap),
            _bar(line.gap, widest),
        )
        for line in found.classes
    ]
    yield _table(("class", "cases", "A", "B", "B − A", Column("")), _ends(rows))
    yield _parts(found)


def _parts(found: GroupComparison) -> Text:
    classes = found.classes
    if not found.classes_of("head"):
        known = not any(isnan(line.cases) for line in classes)
        reason = "All classes are equally frequent" if known else "Class counts are unknown"
        return Text(f"{reason}: no head, no tail.")
    texts = [
        f"{name}, the third of the classes with {which} cases ({len(lines)} of {len(classes)}): "
        f"{count.won} gain, {count.lost} lose"
        for name, which in (("head", "most"), ("tail", "fewest"))
        for lines in [found.classes_of(name)]
        for count in [count_gains(lines)]
    ]
    return Text("\n".join(texts))


def _clients(found: GroupComparison) -> Iterator[RenderableType]:
    lines = found.clients
    if all(line.a == line.b for line in lines):
        yield _title(f"Client weights, seed {found.seed_of_clients}: the same in both")
        return
    yield _title(f"Client weights in %, seed {found.seed_of_clients}")
    rows = [_client(line) for line in sorted(lines, key=lambda line: line.a - line.b)]
    yield _table(("client", "samples", "A", "B", "B − A"), _ends(rows))
    ours = effective_clients(np.array([line.a for line in lines]))
    theirs = effective_clients(np.array([line.b for line in lines]))
    count = f"{ours:.1f} (A), {theirs:.1f} (B) of {len(lines)}"
    yield Text(f"effective number of clients, 1 / Σ weight²: {count}")


def _seeds(seeds: Sequence[int]) -> str:
    """Return seeds, with consecutive ones as a range, as in 0–2, 7, 9–10."""
    runs: list[list[int]] = []
    for seed in seeds:
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _client(line: ClientWeights) -> Sequence[Entry]:
    ours, theirs = line.samples
    samples = f"{ours:,}" if ours == theirs else f"{ours:,} / {theirs:,}"
    change = _colored(signed(100 * (line.b - line.a)), line.b - line.a)
    return str(line.client), samples, percent(line.a), percent(line.b), change


def _ends(rows: Sequence[Sequence[Entry]]) -> Sequence[Sequence[Entry]]:
    """Return the first and last rows, with one between them that counts those left out."""
    more = len(rows) - 2 * ROWS
    if more <= 1:
        return rows
    gap = Cell(f"… {more} more", color="dim")
    return [*rows[:ROWS], (gap, *[""] * (len(rows[0]) - 1)), *rows[-ROWS:]]


def _bar(value: float, widest: float) -> Cell:
    length = round(BAR * abs(value) / widest) if widest and not isnan(value) else 0
    return _colored("█" * length, value)


def _colored(text: str, value: float) -> Cell:
    return Cell(text, color="green" if value > 0 else "red" if value < 0 else "")


def _share(value: float) -> str:
    return percent(finite_or_none(value))


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _table(
    head: Sequence[str | Column], rows: Sequence[Sequence[Entry]], words: int = 1
) -> RenderableType:
    return to_rich(make_table(head, rows, words=words), length=WIDEST, wrap=False)


def compare(
    a: Annotated[
        str, typer.Argument(help="A run folder, a folder of runs, or a pattern in quotes.")
    ],
    b: Annotated[str, typer.Argument(help="The other one; differences are B − A.")],
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", help="Macro metric; the first one also judges the classes."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare two runs or groups: settings, scores, classes that gain and lose, client weights.

    The runs of a group differ by their seed only. Scores are compared on the seeds of both.
    """
    found = compare_groups(read_group(a), read_group(b), metrics or [])
    if as_json:
        print_json(plain(found))
    elif not quiet:
        console = Console(highlight=False)
        for part in screenful(found):
            say(console, part, wrap=True)
