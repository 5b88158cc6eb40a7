"""Writes the tables of docs/results.md, results-small.md and methods.md between their marks."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.page import fill

from studies import (
    against_paper,
    convergence,
    every_method,
    gradient_variance,
    heads,
    logit_adjustment,
    patient_bootstrap,
    personal,
    published,
    tables,
    thresholds,
    winner,
)
from studies.stored import RESULTS, ROOT, StoredGrid, read_rows, read_stored

LETTERS = "abcdefghijkl"
NOT_RUN = "*Not run yet.*"
CONTROL = "FedAvg-scaled (control)"
OWN_RATE = "FedBB, own rate (0.003)"
CHEST = ("test auroc", "test average_precision", "test balanced_accuracy")
OURS = (
    ("FedBB", "FedAvg"),
    ("FedBB", CONTROL),
    ("FedBB as printed", CONTROL),
    (CONTROL, "FedAvg"),
)
OURS_SHORT = OURS[:2] + OURS[3:]
CALIBRATED = (("FedLC", "FedAvg"), ("FedBB", "FedLC"))
PLUS = (
    ("FedBB-plus", "FedAvg"),
    ("FedBB-plus", "FedBB"),
    ("FedBB-plus", CONTROL),
)
CANDIDATES = (
    ("Plus: no PNB, margin 10", "FedAvg"),
    ("Plus: α, margin 10", "Plus: no PNB, margin 10"),
    ("Plus: no PNB, margin 10", "FedLC, τ = 10"),
)


@dataclass(frozen=True)
class Classes:
    """What is shown of each class: measures, in one column of the table, of some of its rows."""

    measures: tuple[str, ...]
    at: Mapping[str, str]
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """A grid as the page shows it: its number, its measures, and the pairs of rows compared."""

    number: str
    grid: str
    measures: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...] = ()
    choosing: bool = False
    classes: Classes | None = None


SMALL = (
    Part(
        "1",
        "natural-images",
        ("test accuracy",),
        (
            *OURS,
            *((method, "FedAvg") for method in ("MOON", "FedNova", "FedAlign", "FedLC")),
            ("FedBB", "FedLC"),
            *PLUS,
            ("FedBB-plus", "FedLC"),
            *((OWN_RATE, other) for other in ("FedBB", "FedAvg", "FedLC", "FedBB-plus")),
        ),
    ),
    Part(
        "2",
        "chest-xrays",
        CHEST,
        (
            *OURS,
            ("FedBB, unit mean weight", "FedAvg"),
            ("FedBB, unit mean weight", "FedBB"),
            *PLUS,
        ),
    ),
    Part("6a", "rates-small-cnn", ("validation accuracy",), choosing=True),
    Part("6b", "rates-resnet11", ("validation accuracy",), choosing=True),
    Part("6c", "rates-chest", ("validation auroc",), choosing=True),
    Part(
        "6d",
        "own-rates-chest",
        CHEST,
        (
            ("FedBB", "FedAvg"),
            ("FedBB", "FedBB, unit mean weight"),
            ("FedBB, unit mean weight", "FedAvg"),
            *PLUS[:2],
        ),
    ),
    Part(
        "6h",
        "own-rates-resnet11",
        ("test accuracy",),
        (
            ("FedBB, 0.01", "FedAvg, 0.01"),
            ("FedBB, unit mean weight, 0.003", "FedAvg, 0.01"),
            ("FedLC, 0.03", "FedAvg, 0.01"),
            ("FedBB, 0.01", "FedLC, 0.03"),
            ("FedBB-plus, 0.01", "FedLC, 0.03"),
        ),
    ),
    Part("7a", "plus-candidates", ("validation accuracy",), CANDIDATES),
    Part(
        "7b",
        "plus-candidates-chest",
        ("validation auroc", "validation balanced_accuracy"),
        CANDIDATES[:2],
    ),
    Part(
        "4a",
        "ablations",
        ("test accuracy",),
        (
            ("PNB alone", CONTROL),
            ("CBR alone, share-std", "FedAvg"),
            ("CBR alone, printed", "FedAvg"),
            ("CBR alone, count-std", "CBR alone, share-std"),
            ("FedBB", "PNB alone"),
            *((variant, "FedBB") for variant in ("γ = 0.5", "μ = 1", "μ = 2", "μ = unit")),
            *((variant, "FedBB") for variant in ("β = .99", "τ = 0.1", "β = .99, τ = 0.1")),
        ),
    ),
    Part(
        "4b",
        "harmonized",
        ("test accuracy",),
        tuple(
            (f"{base}+FedBB", f"{base}+FedLC")
            for base in ("FedProx", "MOON", "FedNova", "FedAlign")
        ),
    ),
    Part(
        "4c",
        "hundred-clients",
        ("test accuracy",),
        (*OURS[:2], ("FedLC", "FedAvg"), *PLUS, ("FedBB-plus", "FedLC")),
    ),
    Part(
        "5",
        "central-losses",
        ("test accuracy", "test auroc", "test average_precision"),
        (
            *((loss, "BCE / CE") for loss in ("Focal", "CB", "FedLC", "FedLC, τ = 10", "PNB")),
            ("FedLC, τ = 10", "PNB"),
        ),
    ),
    Part(
        "3",
        "many-classes",
        ("test accuracy",),
        (*OURS[:2], ("FedLC", "FedAvg"), *PLUS, ("FedBB-plus", "FedLC")),
    ),
    Part("8b", "ceiling", ("test accuracy",)),
)


RECENT = (
    Part("10a", "rates-cifar-features", ("validation accuracy",), choosing=True),
    Part("10b", "rates-chest-features", ("validation auroc",), choosing=True),
    Part("10c", "cifar-features", ("test accuracy",), (*OURS_SHORT, *CALIBRATED)),
    Part(
        "10d",
        "chest-features",
        ("test auroc", "test average_precision"),
        (*OURS_SHORT, *PLUS),
        classes=Classes(("auroc",), {"skew": "sizes, δ = 0.5"}, ("FedAvg", "FedBB", CONTROL)),
    ),
    Part("10f", "chest-schedules", ("test auroc",), OURS_SHORT),
    Part("10g", "imbalance-factors", ("test accuracy",), (*OURS_SHORT, *CALIBRATED)),
    Part("10h", "rates-chest-blocks", ("validation auroc",), choosing=True),
    Part("10i", "chest-blocks", ("test auroc", "test average_precision"), OURS_SHORT),
    Part("11", "fashion", ("test accuracy",), (*OURS_SHORT, *CALIBRATED)),
    Part("14", "paper-schedule", ("test accuracy",), (*OURS_SHORT, *CALIBRATED, *PLUS)),
    Part(
        "17",
        "paper-schedule-tenth",
        ("test accuracy",),
        (*OURS_SHORT, *CALIBRATED, *PLUS),
    ),
    Part(
        "18",
        "niid-bench",
        ("test accuracy",),
        (
            *((method, "FedAvg") for method in ("FedProx, μ = 0.001", "SCAFFOLD", "FedNova")),
            *OURS_SHORT,
            *CALIBRATED,
            *PLUS[:1],
        ),
    ),
)
PARTS = (*RECENT, *SMALL)

PAGES = {"results.md": RECENT, "results-small.md": SMALL}


def main() -> None:
    """Fill every place of the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    beside = {
        "results.md": recent_tables(options.results),
        "results-small.md": small_tables(options.results),
    }
    for name, parts in PAGES.items():
        page = options.docs / name
        text = fill(page.read_text(encoding="utf-8"), "cost", cost(parts, options.results))
        for part in parts:
            stored = read_stored(part.grid, options.results)
            text = fill(text, part.grid, NOT_RUN if stored is None else shown(part, stored))
        for place, table in beside[name].items():
            text = fill(text, place, table)
        page.write_text(text, encoding="utf-8")
        print("written to", page)
    page, stored = options.docs / "methods.md", read_stored(every_method.GRID, options.results)
    whole = NOT_RUN if stored is None else every_method.table(stored)
    page.write_text(fill(page.read_text("utf-8"), every_method.GRID, whole), encoding="utf-8")
    print("written to", page)


def small_tables(results: Path = RESULTS) -> dict[str, str]:
    """Return the tables of the small study that no grid has, by their markers."""
    made = {"convergence": convergence.tables(results)}
    for beside in (personal, logit_adjustment, thresholds):
        rows = read_rows(results / beside.FILE)
        made[beside.FILE.removesuffix(".csv")] = beside.table(rows) if rows else NOT_RUN
    return made


def recent_tables(results: Path = RESULTS) -> dict[str, str]:
    """Return the tables of the other page that no grid has, by their markers."""
    rows = read_rows(results / gradient_variance.FILE)
    patients = read_rows(results / patient_bootstrap.FILE)
    with_heads = (
        ("paper-schedule", ("14a", "14b"), "data"),
        ("paper-schedule-tenth", ("17a", "17b"), "data"),
        (published.GRID, ("18b", "18c"), "partition"),
    )
    chosen = winner.choose(results)
    return {
        "candidates": NOT_RUN if chosen is None else winner.candidates("12", results),
        "winner": NOT_RUN if chosen is None else winner.tables(chosen, "13", results),
        **{
            f"{grid}-heads": heads.table(found, numbers, axis) if found else NOT_RUN
            for grid, numbers, axis in with_heads
            for found in [read_rows(results / grid / heads.FILE)]
        },
        "niid-bench-published": published.table("18a", results),
        "gradient-variance": gradient_variance.table(rows, "15") if rows else NOT_RUN,
        "patient-bootstrap": patient_bootstrap.table(patients, "10k") if patients else NOT_RUN,
        "against-paper": against_paper.table("16", results),
    }


def cost(parts: Sequence[Part], results: Path = RESULTS) -> str:
    """Return how many cells these parts have finished, and in which time."""
    found = [stored for part in parts if (stored := read_stored(part.grid, results)) is not None]
    cells = sum(len(stored.cells) + len(stored.diverged) for stored in found)
    hours = sum(stored.about["core hours"] for stored in found)
    return (
        f"In total {cells} runs and {hours:.1f} core hours, that is {hours / 2:.1f} hours of wall "
        "time with one run on each of two cores."
    )


def shown(part: Part, stored: StoredGrid) -> str:
    """Return the tables of a part, and how they were produced."""
    blocks = [tables.scale(stored)]
    for place, measure in enumerate(part.measures):
        number = numbered(part, place)
        name = tables.measure_title(measure)
        blocks.append(f"**{name[0].upper()}{name[1:]}**")
        blocks.append(tables.scores(stored, measure, number, choosing=part.choosing))
        if part.pairs:
            blocks.append(tables.differences(stored, measure, part.pairs))
        if part.choosing:
            best = tables.chosen(stored, measure)
            rates = ", ".join(f"{label} {rate}" for label, rate in best.items())
            blocks.append(f"Highest: {rates}.")
    if part.classes is not None:
        blocks += _by_class(part.classes, stored)
    blocks.append(tables.origin(stored))
    return "\n\n".join(blocks)


def numbered(part: Part, place: int) -> str:
    """Return a table's number: 2a, 2b for those of part 2, 6d, 6e for those of part 6d."""
    if len(part.measures) == 1:
        return part.number
    if part.number[-1].isdigit():
        return f"{part.number}{LETTERS[place]}"
    return f"{part.number[:-1]}{LETTERS[LETTERS.index(part.number[-1]) + place]}"


def _by_class(classes: Classes, stored: StoredGrid) -> Iterator[str]:
    place = ", ".join(classes.at.values())
    for measure in classes.measures:
        yield f"**Test {tables.measure_title(measure)} of each class, {place}**"
        yield tables.by_class(stored, measure, classes.at, classes.rows)


if __name__ == "__main__":
    main()
