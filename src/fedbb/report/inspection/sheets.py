"""The figures of an inspection as CSV files: classes, clients, and counts of both."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedbb._util.files import replacing
from fedbb.analysis.inspect import Inspection
from fedbb.errors import RunError
from fedbb.imbalance.clients import READINGS
from fedbb.report.text import to_bytes


def write_sheets(found: Inspection, folder: Path) -> list[Path]:
    """Write classes.csv, clients.csv and counts.csv into a folder, and return their paths."""
    sheets = {"classes": classes(found), "clients": clients(found), "counts": counts(found)}
    return [write_text(folder / f"{name}.csv", as_csv(rows)) for name, rows in sheets.items()]


def write_text(path: Path, text: str) -> Path:
    """Write a text as a file, making its folder if need be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(to_bytes(text))
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error}") from error
    return path


def as_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV."""
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows(rows)
    return target.getvalue()


def classes(found: Inspection) -> list[Sequence[Any]]:
    """Return a row for each class: cases, effective numbers, α, and parts of the loss."""
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
    return [head, *zip(*columns, strict=True)]


_STAGES = ("raw", "cased", "classed")


def clients(found: Inspection) -> list[Sequence[Any]]:
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
    return [head, *zip(*columns, strict=True)]


def counts(found: Inspection) -> Iterable[Sequence[Any]]:
    """Yield the positive cases of each client and class."""
    yield ["client", *found.statistics.classes]
    for name, row in zip(found.statistics.clients, found.statistics.positive, strict=True):
        yield [name, *row.astype(int).tolist()]
