"""An inspection on one terminal screen, as a page, and as tables and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.text import Text

from fedbb._util.files import finite_or_none, write_text
from fedbb._util.table import Table, elide, make_table, to_csv, to_rich, to_terminal
from fedbb._util.text import counted
from fedbb._util.toml import toml_key, toml_value
from fedbb.analysis.advice import Advice, mean_distance
from fedbb.analysis.inspect import Inspection
from fedbb.analysis.measures import gini_of, ratio_of
from fedbb.analysis.tables import (
    first_and_last,
    largest_and_smallest_classes,
    largest_and_smallest_clients,
)
from fedbb.imbalance import READINGS
from fedbb.records import FloatArray, LabelCounts, Task
from fedbb.report.page.shell import Page, read_part, write_page
from fedbb.report.text import TASK_TITLES

_STAGES = ("raw", "cased", "classed")


CLASSES, CLIENTS, WARNINGS = 8, 6, 5
"""Of each as many on the terminal."""

PAGE_CLASSES, PAGE_CLIENTS = 60, 60
"""Most classes and clients in figures, the largest and the smallest; the CSV files hold all."""

MOST_CELLS = 100_000


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


def _one_line(text: str) -> str:
    return " ".join(text.split())


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
    statistics = found.statistics
    kept_classes = _kept(statistics.positive.sum(axis=0), PAGE_CLASSES)
    kept_clients = _kept(found.clients.samples.astype(np.float64), PAGE_CLIENTS)
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
        **_class_data(found, kept_classes),
        **_client_data(found, kept_clients),
        "map": [_whole(row) for row in statistics.positive[np.ix_(kept_clients, kept_classes)]],
    }


def _class_data(found: Inspection, kept: list[int]) -> dict[str, Any]:
    """Return what the page shows of these classes."""
    statistics = found.statistics
    return {
        "classes": [statistics.classes[place] for place in kept],
        "class_places": kept,
        "holders": (statistics.positive[:, kept] > 0).sum(axis=0).tolist(),
        "total": [
            _whole(statistics.positive.sum(axis=0)),
            _whole(statistics.negative.sum(axis=0)),
        ],
        "together": _together(found, kept),
        "sets": finite_or_none(found.classes.sets),
    }


def _client_data(found: Inspection, kept: list[int]) -> dict[str, Any]:
    """Return what the page shows of these clients."""
    clients = found.clients
    return {
        "clients": [found.statistics.clients[place] for place in kept],
        "held": _held(found, kept),
        "samples": clients.samples[kept].tolist(),
        "all_samples": clients.samples.tolist(),
        "places": kept,
        "dispersions": {
            reading: _rounded(spread) for reading, spread in clients.dispersions.items()
        },
        "distance": _rounded(clients.distance[kept]),
        "noise": _rounded(clients.noise[kept]),
        "absent": clients.absent[kept].tolist(),
        "loss_weight": _rounded(clients.loss_weight[kept]),
        "without_loss": _without_loss(found, kept),
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
