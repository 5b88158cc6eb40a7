"""The page of an inspection: the three levels drawn, and what other settings would make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedbb.analysis.advice import Advice
from fedbb.analysis.record import Inspection, as_plain
from fedbb.analysis.shorten import ends
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
    tally, clients = found.tally, found.clients
    kept_classes = _kept(tally.positive.sum(axis=0), CLASSES)
    kept_clients = _kept(clients.samples.astype(np.float64), CLIENTS)
    return {
        "format": "fedbb-inspection-1",
        "task": str(tally.task),
        "headline": headline(found),
        "notes": list(found.notes),
        "words": level_words(found),
        "settings": as_plain(found.settings),
        "pnb": as_plain(found.settings.loss),
        "warnings": [[warning.level, warning.text] for warning in found.warnings],
        "advice": {"reasons": list(found.advice.reasons), "fragment": fragment},
        "advised": _advised(found.advice),
        "left_out": [
            len(tally.classes) - len(kept_classes),
            len(tally.clients) - len(kept_clients),
        ],
        "classes": [tally.classes[place] for place in kept_classes],
        "clients": [tally.clients[place] for place in kept_clients],
        "class_places": kept_classes,
        "holders": (tally.positive[:, kept_classes] > 0).sum(axis=0).tolist(),
        "total": [
            _whole(tally.positive.sum(axis=0)),
            _whole(tally.negative.sum(axis=0)),
        ],
        "held": _held(found, kept_clients),
        "map": [_whole(row) for row in tally.positive[np.ix_(kept_clients, kept_classes)]],
        "samples": clients.samples[kept_clients].tolist(),
        "all_samples": clients.samples.tolist(),
        "places": kept_clients,
        "dispersions": {
            reading: _rounded(spread) for reading, spread in clients.dispersions.items()
        },
        "distance": _rounded(clients.distance[kept_clients]),
        "noise": _rounded(clients.noise[kept_clients]),
        "absent": clients.absent[kept_clients].tolist(),
        "loss_weight": _rounded(clients.loss_weight[kept_clients]),
        "together": _together(found, kept_classes),
        "sets": as_plain(found.classes.sets),
    }


def _advised(advice: Advice) -> dict[str, Any]:
    names = ("beta", "tau", "mu", "gamma", "reading", "alpha_min")
    return {name: getattr(advice, name) for name in names} | {"class_factor": "alpha"}


def _kept(sizes: FloatArray, most: int) -> list[int]:
    """Return the places of the largest and smallest, by size."""
    return ends(np.argsort(-sizes, kind="stable").tolist(), most)


def _held(found: Inspection, kept: list[int]) -> list[list[list[int]]] | None:
    """Return the cases of each drawn client, unless they would make the page too large."""
    tally = found.tally
    if len(kept) * len(tally.classes) > MOST_CELLS:
        return None
    return [[_whole(tally.positive[client]), _whole(tally.negative[client])] for client in kept]


def _together(found: Inspection, kept: list[int]) -> list[list[int]] | None:
    table = found.tally.together
    if table is None:
        return None
    return [_whole(row) for row in table[np.ix_(kept, kept)]]


def _whole(values: FloatArray) -> list[int]:
    return [round(value) for value in values.tolist()]


def _rounded(values: FloatArray) -> list[float]:
    return [float(f"{value:.9g}") for value in values.tolist()]
