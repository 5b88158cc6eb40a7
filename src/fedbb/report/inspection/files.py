"""An inspection written as files: page, CSV tables, JSON, and its advice as part of a recipe."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedbb._util.table import Table, make_table, to_csv
from fedbb.analysis.advice import Advice
from fedbb.analysis.inspect import Inspection
from fedbb.imbalance.clients import READINGS
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
