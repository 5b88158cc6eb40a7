"""The page of an inspection: the three levels drawn, and what other settings would make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedbb._util.json import finite_or_none
from fedbb.analysis.html import first_and_last
from fedbb.analysis.inspect import Inspection
from fedbb.records import FloatArray
from fedbb.report.inspection.page_words import headline, level_words
from fedbb.report.site.shell import Page, read_part, write_page

CLASSES, CLIENTS = 60, 60
"""So many at most are drawn, the largest and the smallest; the CSV files have them all."""
MOST_CELLS = 100_000
_PACKAGE = "fedbb.report.inspection"


def write_inspection(found: Inspection, fragment: str, path: Path) -> Path:
    """Write the page and return its path."""
    page = Page(
        title=f"How uneven is {found.title}?",
        data=page_data(found, fragment),
        body=read_part("page.html", _PACKAGE),
        style=read_part("page.css", _PACKAGE),
        script=read_part("weights.js", _PACKAGE) + read_part("page.js", _PACKAGE),
    )
    write_page(path, page)
    return path


def page_data(found: Inspection, fragment: str) -> dict[str, Any]:
    """Return all that the page shows, as plain values; classes and clients by size."""
    statistics, clients = found.statistics, found.clients
    kept_classes = _kept(statistics.positive.sum(axis=0), CLASSES)
    kept_clients = _kept(clients.samples.astype(np.float64), CLIENTS)
    return {
        "format": "fedbb-inspection-1",
        "task": str(statistics.task),
        "headline": headline(found),
        "notes": list(found.notes),
        "words": level_words(found),
        "settings": finite_or_none(found.settings),
        "warnings": [[warning.level, warning.text] for warning in found.warnings],
        "advice": {"reasons": list(found.advice.reasons), "fragment": fragment},
        "advised": {"beta": found.advice.beta, "tau": 1.0, "gamma": found.advice.gamma},
        "left_out": [
            len(statistics.classes) - len(kept_classes),
            len(statistics.clients) - len(kept_clients),
        ],
        "classes": [statistics.classes[place] for place in kept_classes],
        "clients": [statistics.clients[place] for place in kept_clients],
        "class_places": kept_classes,
        "holders": (statistics.positive[:, kept_classes] > 0).sum(axis=0).tolist(),
        "total": [
            _whole(statistics.positive.sum(axis=0)),
            _whole(statistics.negative.sum(axis=0)),
        ],
        "held": _held(found, kept_clients),
        "map": [_whole(row) for row in statistics.positive[np.ix_(kept_clients, kept_classes)]],
        "samples": clients.samples[kept_clients].tolist(),
        "all_samples": clients.samples.tolist(),
        "places": kept_clients,
        "dispersions": {
            reading: _rounded(spread) for reading, spread in clients.dispersions.items()
        },
        "distance": _rounded(clients.distance[kept_clients]),
        "noise": _rounded(clients.noise[kept_clients]),
        "absent": clients.absent[kept_clients].tolist(),
        "together": _together(found, kept_classes),
        "sets": finite_or_none(found.classes.sets),
    }


def _kept(sizes: FloatArray, most: int) -> list[int]:
    """Return the places of the largest and smallest, by size."""
    return first_and_last(np.argsort(-sizes, kind="stable").tolist(), most)


def _held(found: Inspection, kept: list[int]) -> list[list[list[int]]] | None:
    """Return the cases of each drawn client, unless they would make the page too large."""
    statistics = found.statistics
    if len(kept) * len(statistics.classes) > MOST_CELLS:
        return None
    return [
        [_whole(statistics.positive[client]), _whole(statistics.negative[client])]
        for client in kept
    ]


def _together(found: Inspection, kept: list[int]) -> list[list[int]] | None:
    table = found.statistics.together
    if table is None:
        return None
    return [_whole(row) for row in table[np.ix_(kept, kept)]]


def _whole(values: FloatArray) -> list[int]:
    return [round(value) for value in values.tolist()]


def _rounded(values: FloatArray) -> list[float]:
    return [float(f"{value:.9g}") for value in values.tolist()]
