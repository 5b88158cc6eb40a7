"""What a comparison of two sides says: a verdict, head and tail, and what to beware of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedbb.report.compare import ClassScore, Contrast, Gap
from fedbb.report.sides import Side
from fedbb.report.tables import summary_of
from fedbb.report.wording import UNDEFINED, metric_title


@dataclass(frozen=True)
class Tally:
    """How many classes score higher and lower on side B, and how many alike."""

    won: int
    lost: int
    alike: int


def tally(classes: Sequence[ClassScore]) -> Tally:
    """Count the classes that won and lost; undefined ones count nowhere."""
    gaps = [line.gap for line in classes if not math.isnan(line.gap)]
    won, lost = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
    return Tally(won, lost, len(gaps) - won - lost)


def head_and_tail(
    classes: Sequence[ClassScore],
) -> tuple[Sequence[ClassScore], Sequence[ClassScore]]:
    """Return the halves with most and with fewest cases.

    The middle one of an odd number is in neither; both are empty where all classes are as frequent,
    or nobody knows.
    """
    ordered = sorted(classes, key=lambda line: -line.cases)
    half = len(ordered) // 2
    unknown = any(math.isnan(line.cases) for line in ordered)
    if not half or unknown or ordered[0].cases == ordered[-1].cases:
        return (), ()
    return ordered[:half], ordered[-half:]


def verdict(found: Contrast) -> str:
    """Return what the first metric says after the last round, in a sentence."""
    score = found.scores[0]
    gap, title = score.gap, metric_title(score.metric)
    size = f"{points(gap.mean)} points of {title}"
    if math.isnan(gap.mean):
        return f"No seed has a {title} of both sides."
    if gap.pairs < 2:
        why = "no seed in common" if gap.pairs == 0 else "one seed"
        return f"B − A is {size}; {why}, which proves nothing."
    told = f"{size}, 95 % interval {interval_text(gap)}, higher on {gap.ahead} of {gap.pairs} seeds"
    if gap.mean == 0 and gap.ahead == gap.behind == 0:
        return f"A and B score the same on all {gap.pairs} seeds."
    if not gap.interval.excludes_zero:
        return f"A and B are not clearly apart ({told})."
    return f"B is {'ahead of' if gap.mean > 0 else 'behind'} A ({told})."


def notes(found: Contrast) -> list[str]:
    """Return what a reader must know besides the numbers."""
    sides = {"A": found.a, "B": found.b}
    told = [f"{name}: {note}" for name, side in sides.items() for note in side.notes]
    if _data(found.a) != _data(found.b):
        told.append("the sides are scored on other data, so their scores say little")
    if found.a.seeds != found.b.seeds:
        shared = ", ".join(map(str, found.shared)) or "none"
        told.append(f"seeds in common: {shared}; differences are over those")
    if _ends_alike(found):
        told.append("both sides end with the same models, bit for bit")
    if "test" in {summary_of(run).chosen_on for run in (*found.a.runs, *found.b.runs)}:
        told.append("best rounds were chosen on test data, so their scores are too rosy")
    if not found.classes:
        told.append("the sides have not the same classes, so classes are not compared")
    if not found.clients:
        told.append("the sides have not the same clients, so weights are not compared")
    return told


def points(value: float, decimals: int = 1) -> str:
    """Return a signed difference in points.

    >>> points(-0.0213), points(0.0), points(float("nan"))
    ('−2.1', '0.0', '–')
    """
    if math.isnan(value):
        return UNDEFINED
    text = f"{100 * abs(value):.{decimals}f}"
    sign = "" if float(text) == 0 else "−" if value < 0 else "+"
    return sign + text


def interval_text(gap: Gap) -> str:
    """Return the ends of an interval in points, or a dash where there is none."""
    if math.isnan(gap.interval.low):
        return UNDEFINED
    return f"{points(gap.interval.low)} … {points(gap.interval.high)}"


def seeds_text(seeds: Sequence[int]) -> str:
    """Return seeds, neighbors drawn together.

    >>> seeds_text([0, 1, 2, 7, 9, 10])
    '0–2, 7, 9–10'
    """
    runs: list[list[int]] = []
    for seed in seeds:
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def effective_clients(weights: Sequence[float]) -> float:
    """Return how many clients of equal weight would be as concentrated as these: 1 / Σw²."""
    return 1 / sum(weight**2 for weight in weights)


def as_json(found: Contrast) -> dict[str, Any]:
    """Return the whole comparison as plain values, with None for what is undefined."""
    head, tail = head_and_tail(found.classes)
    parts = {"all": found.classes, "head": head, "tail": tail}
    plain = {
        "format": "fedbb-compare-1",
        "a": _side(found.a),
        "b": _side(found.b),
        "verdict": verdict(found),
        "settings": [asdict(line) for line in found.settings],
        "scores": [asdict(line) for line in found.scores],
        "class_metric": found.class_metric,
        "classes": [asdict(line) for line in found.classes],
        "tally": {name: asdict(tally(part)) for name, part in parts.items()},
        "clients": [asdict(line) for line in found.clients],
        "notes": notes(found),
    }
    return {key: _defined(value) for key, value in plain.items()}


def _side(side: Side) -> dict[str, Any]:
    return {
        "given": side.given,
        "runs": [str(run.path) for run in side.runs],
        "seeds": list(side.seeds),
        "method": side.runs[0].recipe.method.name,
        "data": side.runs[0].federation.data,
    }


def _data(side: Side) -> tuple[object, ...]:
    data = side.runs[0].recipe.data
    return data.name, data.path, data.options, side.runs[0].federation.task


def _ends_alike(found: Contrast) -> bool:
    pairs = [(found.a.of_seed(seed), found.b.of_seed(seed)) for seed in found.shared]
    return bool(pairs) and all(summary_of(a).sha256 == summary_of(b).sha256 for a, b in pairs)


def _defined(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _defined(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_defined(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value
