"""The page of `fedbb inspect`: the three levels of imbalance, and what other settings would do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedbb._util.files import finite_or_none
from fedbb._util.text import counted
from fedbb.analysis.advice import Advice
from fedbb.analysis.inspect import Inspection
from fedbb.analysis.measures import gini_of, ratio_of
from fedbb.analysis.tables import first_and_last
from fedbb.analysis.warnings import mean_distance
from fedbb.records import FloatArray, LabelCounts, Task
from fedbb.report.labels import TASK_TITLES
from fedbb.report.page.shell import Page, read_part, write_page

CLASSES, CLIENTS = 60, 60
"""Most classes and clients in figures, the largest and the smallest; the CSV files hold all."""
MOST_CELLS = 100_000


def write_inspection(found: Inspection, fragment: str, path: Path) -> Path:
    """Write the page and return its path."""
    page = Page(
        title=f"Label imbalance of {found.title}",
        data=page_data(found, fragment),
        body=read_part("inspection.html"),
        style=read_part("inspection.css"),
        script=read_part("weights.js") + read_part("inspection.js"),
    )
    return write_page(path, page)


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
        "pnb": finite_or_none(found.settings.loss),
        "warnings": [[warning.level, warning.text] for warning in found.warnings],
        "advice": {"reasons": list(found.advice.reasons), "fragment": fragment},
        "advised": _advised(found.advice),
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
        "loss_weight": _rounded(clients.loss_weight[kept_clients]),
        "without_loss": _without_loss(found, kept_clients),
        "together": _together(found, kept_classes),
        "sets": finite_or_none(found.classes.sets),
    }


def headline(found: Inspection) -> str:
    """Return the size of the data in one sentence."""
    held = found.statistics
    return (
        f"{found.samples:,} samples, {len(held.classes):,} classes ({TASK_TITLES[held.task]}), "
        f"{counted(len(held.clients), 'client')}."
    )


def level_words(found: Inspection) -> dict[str, list[str]]:
    """Return for each level the sentences that go with its figures."""
    return {"case": _cases(found), "class": _classes(found), "client": _clients(found)}


def _cases(found: Inspection) -> list[str]:
    cases = found.cases
    if found.statistics.task is Task.MULTICLASS:
        before, after = cases.raw[0].max(), cases.classed[0].max()
        return [
            f"If every sample has the same loss, the largest share of one class in the loss is "
            f"{before:.1%} with plain cross-entropy and {after:.1%} with PNB."
        ]
    before, middle = cases.raw.sum(axis=1), cases.cased.sum(axis=1)
    return [
        f"If every case has the same loss, positive cases contribute {before[0]:.1%} of plain BCE "
        f"and negative cases {before[1]:.1%}; weighted by α, {middle[0]:.1%} and {middle[1]:.1%}."
    ]


def _classes(found: Inspection) -> list[str]:
    classes, cases = found.classes, found.cases
    stages = [stage.sum(axis=0) for stage in (cases.raw, cases.cased, cases.classed)]
    words = [
        f"Ratio of the largest to the smallest class that occurs: {classes.ratio:,.1f}. Gini "
        f"coefficient {classes.gini:.3f}, entropy {classes.entropy:.2f} bits, equivalent to "
        f"{classes.effective:.1f} equal classes."
    ]
    if found.statistics.task is Task.MULTILABEL:
        ratios = ", ".join(f"{ratio_of(stage):.1f}" for stage in stages)
        ginis = ", ".join(f"{gini_of(stage):.2f}" for stage in stages)
        words.append(
            "Shares of the classes in the loss (plain, cases weighted, cases and classes "
            f"weighted): largest to smallest ratio {ratios}, Gini coefficient {ginis}."
        )
    if classes.sets is not None:
        sets = classes.sets
        words.append(
            f"{sets.seen:,} of the 2^{sets.classes} possible label sets occur; {sets.rare:,} of "
            f"them on fewer than ten samples ({sets.rare_samples:,} samples in total)."
        )
    return words


def _clients(found: Inspection) -> list[str]:
    clients, reading = found.clients, found.settings.reading
    if len(clients.names) == 1:
        return ["There is one client, so clients cannot be compared."]
    return [
        f"Weights by size are equivalent to {clients.effective['fedavg']:.1f} equal clients, those "
        f"of CBR ({reading}, γ = {found.settings.gamma:g}) to {clients.effective[reading]:.1f}.",
        f"The mean total variation distance between a client's label distribution and that of all "
        f"data is {mean_distance(clients):.3f}; random clients of these sizes would have "
        f"{float(clients.by_size @ clients.noise):.3f}.",
    ]


def _advised(advice: Advice) -> dict[str, Any]:
    names = ("beta", "tau", "mu", "gamma", "reading", "alpha_min")
    return {name: getattr(advice, name) for name in names} | {"class_factor": "alpha"}


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


def _without_loss(found: Inspection, kept: list[int]) -> list[bool]:
    """Return which drawn clients learn nothing whatever the options of PNB, as with FedLC."""
    # With every α at one half, PNB itself weighs every case above zero.
    loss = replace(found.settings, class_factor="alpha", alpha_min=0.5).client_loss
    held = found.statistics
    counts = (LabelCounts(held.positive[at], held.negative[at], held.samples[at]) for at in kept)
    return [loss.mean_weight(one, held.task) == 0 for one in counts]


def _together(found: Inspection, kept: list[int]) -> list[list[int]] | None:
    table = found.statistics.together
    if table is None:
        return None
    return [_whole(row) for row in table[np.ix_(kept, kept)]]


def _whole(values: FloatArray) -> list[int]:
    return [round(value) for value in values.tolist()]


def _rounded(values: FloatArray) -> list[float]:
    return [float(f"{value:.9g}") for value in values.tolist()]
