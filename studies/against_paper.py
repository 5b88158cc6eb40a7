"""The paper's differences between methods beside ours, in settings that differ in scale only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedbb.paper.tables import printed
from fedbb.report.statistics import PairedDifference, Verdict, paired_difference
from fedbb.report.text import difference_text, signed
from studies.stored import RESULTS, read_stored
from studies.tables import MISSING, markdown

PAIRS = (("FedBB", "FedAvg"), ("FedLC", "FedAvg"), ("FedBB", "FedLC"))


@dataclass(frozen=True)
class Match:
    """A column of a grid, and the place in the paper's table that has the same setting."""

    title: str
    grid: str
    at: Mapping[str, str]
    table: str
    printed_at: Mapping[str, str]
    metric: str = "accuracy"


def _matches() -> tuple[Match, ...]:
    found = [
        Match(f"CIFAR-10, {skew}", grid, {"data": skew}, "cifar10-label-skew", {"skew": skew})
        for grid, skews in (
            ("paper-schedule", ("δ = 0.05", "δ = 0.1", "δ = 0.5")),
            ("paper-schedule-tenth", ("δ = 0.1", "δ = 0.5")),
            ("natural-images", ("δ = 0.05", "δ = 0.1", "δ = 0.5")),
        )
        for skew in skews
    ]
    found += [
        Match(
            f"LT-CIFAR-10, {s}",
            grid,
            {"data": f"LT, {s}"},
            "long-tail",
            {"data": f"LT-CIFAR-10, {s}"},
        )
        for grid, s in (
            ("paper-schedule", "δ = 0.5"),
            ("natural-images", "δ = 0.1"),
            ("natural-images", "δ = 0.5"),
        )
    ]
    found += [
        Match(
            f"NIH X-rays, sizes, {s}",
            "chest-xrays",
            {"skew": f"sizes, {s}"},
            "chest-50-rounds",
            {"data": "NIH CXR14", "skew": s},
            "auroc",
        )
        for s in ("δ = 1", "δ = 0.5", "δ = 0.1")
    ]
    return (*found, *_films_on_features())


def _films_on_features() -> Iterator[Match]:
    """Yield the columns of the paper's X-ray tables whose schedules were run on features."""
    tables: Mapping[str, Mapping[str, Mapping[str, str]]] = {
        "chest-50-rounds": {f"50 × 2, {s}": {"skew": s} for s in ("δ = 1", "δ = 0.1")},
        "chest-30-rounds": {
            f"30 × {e}, {s}": {"epochs": f"E = {e}", "skew": s}
            for e in (2, 5)
            for s in ("δ = 1", "δ = 0.5")
        },
        "hundred-clients": {"100 clients, 5 a round": {}},
    }
    half = {"data": "NIH CXR14", "skew": "δ = 0.5"}
    own = {"skew": "sizes, δ = 0.5"}
    yield Match(
        "NIH X-rays, 50 × 2, δ = 0.5", "chest-features", own, "chest-50-rounds", half, "auroc"
    )
    for table, columns in tables.items():
        for label, at in columns.items():
            own, theirs = {"schedule": label}, {"data": "NIH CXR14", **at}
            yield Match(f"NIH X-rays, {label}", "chest-schedules", own, table, theirs, "auroc")


MATCHES = _matches()


def table(number: str, results: Path = RESULTS) -> str:
    """Return the differences of the paper and ours, and whether ours agree with them."""
    lines = []
    for match in MATCHES:
        for pair in PAIRS:
            own, theirs = our_difference(match, pair, results), paper_difference(match, pair)
            if own is None or theirs is None:
                continue
            text = difference_text(own, scale=100) if own.seeds else MISSING
            name = f"{match.title} (`{match.grid}`)"
            row = [f"{number}.{len(lines) + 1}", name, " − ".join(pair)]
            lines.append([*row, signed(theirs), text, agreement(theirs, own)])
    head = ["row", "setting", "difference", "the paper's", "ours", "do they agree?"]
    return markdown(head, lines, words=3)


def paper_difference(match: Match, pair: tuple[str, str]) -> float | None:
    """Return the difference of the paper's means in points, None if it has not both."""
    means = {
        row.at["method"]: row.mean
        for row in printed(match.table)
        if row.metric == match.metric
        and all(row.at.get(axis) == label for axis, label in match.printed_at.items())
    }
    one, other = (means.get(method) for method in pair)
    return None if one is None or other is None else one - other


def our_difference(match: Match, pair: tuple[str, str], results: Path) -> PairedDifference | None:
    """Return our difference paired by seed, None if a method has no results."""
    stored = read_stored(match.grid, results)
    if stored is None:
        return None
    rows = [stored.scores(f"test {match.metric}", {"method": m, **match.at}) for m in pair]
    return paired_difference(*rows) if all(rows) else None


def agreement(theirs: float, own: PairedDifference) -> str:
    """Return whether ours has the paper's sign by the study's rule."""
    if own.verdict not in (Verdict.AHEAD, Verdict.BEHIND):
        return "open"
    return "yes" if (own.verdict is Verdict.AHEAD) == (theirs > 0) else "no"
