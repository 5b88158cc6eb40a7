"""An inspection on one terminal screen, and as files: a page, tables and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from fedbb._util.table import Table, elide, make_table, to_csv, to_rich, to_terminal
from fedbb._util.text import counted
from fedbb.analysis.advice import Advice
from fedbb.analysis.inspect import Inspection
from fedbb.analysis.tables import largest_and_smallest_classes, largest_and_smallest_clients
from fedbb.analysis.warnings import mean_distance
from fedbb.imbalance import READINGS
from fedbb.report.labels import TASK_TITLES
from fedbb.report.output import write_text
from fedbb.report.page.inspection import write_inspection

_STAGES = ("raw", "cased", "classed")


def write_folder(found: Inspection, fragment: str, folder: Path) -> Path:
    """Write index.html, the CSV files, inspection.json and suggestion.toml; return the page."""
    write_tables(found, folder)
    text = json.dumps(found.as_json(), ensure_ascii=False, allow_nan=False)
    write_text(folder / "inspection.json", text + "\n")
    write_text(folder / "suggestion.toml", fragment)
    return write_inspection(found, fragment, folder / "index.html")


def write_tables(found: Inspection, folder: Path) -> list[Path]:
    """Write classes.csv, clients.csv and counts.csv into a folder, and return their paths."""
    tables = {
        "classes": class_table(found),
        "clients": client_table(found),
        "counts": count_table(found),
    }
    return [write_text(folder / f"{name}.csv", to_csv(table)) for name, table in tables.items()]


def class_table(found: Inspection) -> Table:
    """Return a row for each class: cases, effective numbers, α, and shares of the loss."""
    cases, shares = found.cases, found.classes
    head = ["class", "positives", "negatives", "share", "prevalence", "effective_positives"]
    head += ["effective_negatives", "alpha_positive", "alpha_negative"]
    head += [f"{stage}_{case}" for stage in _STAGES for case in ("positive", "negative")]
    stages = [row for stage in _STAGES for row in getattr(cases, stage)]
    columns = (
        found.statistics.classes,
        cases.positive.astype(int).tolist(),
        cases.negative.astype(int).tolist(),
        shares.shares.tolist(),
        shares.prevalence.tolist(),
        cases.effective_positive.tolist(),
        cases.effective_negative.tolist(),
        cases.alpha_positive.tolist(),
        cases.alpha_negative.tolist(),
        *(row.tolist() for row in stages),
    )
    return make_table(head, zip(*columns, strict=True))


def client_table(found: Inspection) -> Table:
    """Return a row for each client: size, distance, dispersion and weight by reading."""
    held = found.clients
    head = ["client", "samples", "weight_fedavg", "distance", "distance_random", "absent_classes"]
    head += ["loss_weight", *(f"dispersion_{name}" for name in READINGS)]
    head += [f"weight_{name}" for name in READINGS]
    columns = (
        held.names,
        held.samples.tolist(),
        held.by_size.tolist(),
        held.distance.tolist(),
        held.noise.tolist(),
        held.absent.tolist(),
        held.loss_weight.tolist(),
        *(held.dispersions[name].tolist() for name in READINGS),
        *(held.weights[name].tolist() for name in READINGS),
    )
    return make_table(head, zip(*columns, strict=True))


def count_table(found: Inspection) -> Table:
    """Return the positive cases of each client and class."""
    rows = zip(found.statistics.clients, found.statistics.positive, strict=True)
    return make_table(
        ["client", *found.statistics.classes],
        [(name, *row.astype(int).tolist()) for name, row in rows],
    )


def write_fragment(advice: Advice, data: Mapping[str, Any] | None = None) -> str:
    """Return the advice as TOML: the method and, where it is known, the data of a recipe."""
    reasons = [f"# {_one_line(reason)}" for reason in advice.reasons]
    method = ["[method]", 'name = "fedbb"', f"options = {toml_value(advice.options)}"]
    if data is None:
        note = "# Replace the [method] of a recipe by this one."
        return "\n".join([*reasons, note, "", *method, ""])
    lines = [f"{toml_key(key)} = {toml_value(value)}" for key, value in data.items()]
    return "\n".join([*reasons, "", "[data]", *lines, "", *method, ""])


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it; JSON's texts are TOML's, except for one control sign.

    >>> toml_value({"beta": 0.9, "names": ["a", "b c"]})
    '{ beta = 0.9, names = ["a", "b c"] }'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        inner = (f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items())
        return f"{{ {', '.join(inner)} }}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Sequence):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"a recipe holds no {value}")
    return repr(value)


def toml_key(key: str) -> str:
    """Return a key, in quotes unless it is a plain word."""
    plain = key.isascii() and key.replace("-", "").replace("_", "").isalnum()
    return key if plain else toml_value(key)


def _one_line(text: str) -> str:
    return " ".join(text.split())


CLASSES, CLIENTS, WARNINGS = 8, 6, 5


def print_summary(found: Inspection, console: Console) -> None:
    """Print the screen."""
    for part in summary(found):
        console.print(to_terminal(part), highlight=False)


def summary(found: Inspection) -> Iterator[RenderableType]:
    """Yield the parts of the screen from top to bottom."""
    task = TASK_TITLES[found.statistics.task]
    clients = len(found.statistics.clients)
    yield Text.assemble(
        (elide(found.title, 60), "bold"),
        f": {found.samples:,} samples ({task}), {len(found.statistics.classes):,} classes, "
        f"{counted(clients, 'client')}",
    )
    yield Text(_class_line(found))
    yield to_rich(largest_and_smallest_classes(found, CLASSES), wrap=False)
    if clients > 1:
        yield Text(_client_line(found))
        yield to_rich(largest_and_smallest_clients(found, CLIENTS), wrap=False)
    yield from _warnings(found)
    options = ", ".join(f"{key} {value}" for key, value in found.advice.options.items())
    yield Text.assemble(("advice ", "bold"), f"{options}   (why: --suggest)")


def _class_line(found: Inspection) -> str:
    classes = found.classes
    line = (
        f"largest : smallest class {classes.ratio:.4g} : 1, Gini {classes.gini:.2f}, "
        f"entropy {classes.entropy:.2f} bits, equivalent to {classes.effective:.1f} equal classes"
    )
    if classes.sets is not None:
        line += f"; {classes.sets.seen:,} of 2^{classes.sets.classes} label sets seen"
        line += f", {classes.sets.rare:,} of them rare"
    return line


def _client_line(found: Inspection) -> str:
    clients, reading = found.clients, found.settings.reading
    return (
        f"mean distance of clients from all data {mean_distance(clients):.4f} (random clients: "
        f"{float(clients.by_size @ clients.noise):.4f}); weights equivalent to "
        f"{clients.effective['fedavg']:.1f} equal clients by size, "
        f"{clients.effective[reading]:.1f} by CBR ({reading}, γ = {found.settings.gamma:g})"
    )


def _warnings(found: Inspection) -> Iterator[Text]:
    for warning in found.warnings[:WARNINGS]:
        yield Text.assemble(("! ", "bold yellow"), warning.text)
    if len(found.warnings) > WARNINGS:
        yield Text(f"  and {len(found.warnings) - WARNINGS} more (--json, --out)")
