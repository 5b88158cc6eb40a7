"""A page that compares methods: words first, then tables and figures, then how it was made."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from fedbb._util.files import replacing
from fedbb.errors import RunError
from fedbb.report.appendix import environment_section, methods_section, runs_section
from fedbb.report.groups import Comparison, group
from fedbb.report.method_comparison import (
    MethodComparison,
    as_json,
    as_markdown,
    best_table,
    compare_methods,
    difference_table,
    final_table,
)
from fedbb.report.page import Note, Paragraph, Pictures, Section, Tables, write_page
from fedbb.report.pictures import draw
from fedbb.report.prose import UNITS
from fedbb.report.results import RunResult
from fedbb.report.text import Table, to_bytes
from fedbb.report.wording import capitalize

TITLE = "fedbb: FedAvg, its control and FedBB on uneven labels"


def write_demo(runs: Sequence[RunResult], out: Path, title: str = TITLE) -> Path:
    """Write index.html, results.md, results.json and figures/*.png, and return the page's path."""
    parts = [compare_methods(comparison) for comparison in group(runs)]
    if not parts:
        raise RunError("there is no finished run to report")
    unfinished = [run.path.name for run in runs if run.summary is None]
    plain = json.dumps(as_json(parts, unfinished), indent=1, ensure_ascii=False, allow_nan=False)
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
        sections = [
            _summary(parts, unfinished),
            *(_section(part, out, number) for number, part in enumerate(parts, start=1)),
            methods_section(runs),
            runs_section(parts, out),
            environment_section(runs),
        ]
        write_page(out / "index.html", title, sections)
        _write(out / "results.md", as_markdown(title, parts, unfinished))
        _write(out / "results.json", plain + "\n")
    except OSError as error:
        raise RunError(f"the report cannot be written to {out}: {error}") from error
    return out / "index.html"


def _write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(to_bytes(text))


def _summary(parts: Sequence[MethodComparison], unfinished: Sequence[str]) -> Section:
    notes = [Note(part.comparison.title, part.sentences) for part in parts]
    left_out = [Note("Left out because unfinished", tuple(unfinished))] if unfinished else []
    return Section("Summary", (*notes, *left_out, Paragraph(UNITS)))


def _section(part: MethodComparison, out: Path, number: int) -> Section:
    comparison = part.comparison
    stem = f"{number}-{re.sub('[^a-z0-9]+', '-', comparison.federation.data.lower()).strip('-')}"
    tables = [final_table(part.rows)]
    tables += [difference_table(part.differences)] if part.differences else []
    tables += [best_table(part.rows)]
    shown = tuple(Table(table.caption, table.head, table.texts) for table in tables)
    return Section(
        comparison.title,
        (
            Paragraph(_setting(comparison)),
            Note("Verdict", part.sentences),
            Tables(shown),
            Pictures(tuple(draw(comparison, out / "figures", stem))),
            *_remarks(comparison),
        ),
    )


def _remarks(comparison: Comparison) -> list[Note]:
    """Return what the runs noted of their clients, each remark with the runs it holds for."""
    found: dict[str, list[str]] = {}
    for method in comparison.methods:
        for run in method.runs:
            for remark in run.federation.notes:
                found.setdefault(remark, []).append(f"{method.label}, seed {run.recipe.seed}")
    lines = tuple(f"{capitalize(remark)} ({'; '.join(where)})." for remark, where in found.items())
    return [Note("Noted while the data was divided", lines)] if lines else []


def _setting(comparison: Comparison) -> str:
    federation, recipe = comparison.federation, comparison.first.recipe
    kind = {"multiclass": "one class each", "multilabel": "any number of classes each"}
    return (
        f"{federation.train:,} training samples with {kind[federation.task]} of "
        f"{len(federation.classes)}, held by {federation.number} clients; "
        f"{recipe.rounds.number} rounds of {recipe.local.epochs} local "
        f"epoch{'s' if recipe.local.epochs > 1 else ''} with {recipe.model.name}, "
        f"learning rate {recipe.local.lr:g}."
    )
