"""The balanced classifier against the methods it was meant to beat, setting by setting.

A setting is won where the method is ahead of every rival in the score of all classes and in that
of the worst class, by the study's one rule: a 95 % interval of the paired difference above zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedbb.report.statistics import Verdict, paired_difference
from studies.heads import FILE, TRAINED
from studies.stored import RESULTS, Row, StoredGrid, read_rows, read_stored
from studies.tables import MISSING, compare, markdown, score_text

RIVALS = ("FedAvg", "FedLC", "FedBB", "FedAvg-scaled (control)", "FedBB-plus")
REQUIRED = RIVALS[:4]
"""The rivals that count for a win; `fedbb-plus` is shown beside them."""

MEASURES = ("whole", "worst")


@dataclass(frozen=True)
class Setting:
    """A column of a grid, and the score of a class there."""

    title: str
    grid: str
    at: tuple[str, str]
    whole: str = "accuracy"
    of_class: str = "recall"


SETTINGS = (
    Setting("Fashion-MNIST, δ = 0.1", "fashion", ("data", "δ = 0.1")),
    Setting("Fashion-MNIST LT, δ = 0.5", "fashion", ("data", "LT, δ = 0.5")),
    Setting("CIFAR-10 features, δ = 0.1", "cifar-features", ("data", "δ = 0.1")),
    Setting("CIFAR-10 features LT, δ = 0.5", "cifar-features", ("data", "LT, δ = 0.5")),
    Setting(
        "X-ray features, sizes", "chest-features", ("skew", "sizes, δ = 0.5"), "auroc", "auroc"
    ),
    Setting(
        "X-ray features, labels", "chest-features", ("skew", "labels, δ = 0.5"), "auroc", "auroc"
    ),
)


Scores = Mapping[tuple[str, str], Mapping[int, float]]
"""Scores by seed, of a method with a classifier."""


def read_scores(setting: Setting, measure: str, results: Path = RESULTS) -> Scores:
    """Return the test scores of a setting, of all classes or of the worst one."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    axis, label = setting.at
    stored = read_stored(setting.grid, results)
    for row in [] if stored is None else stored.cells:
        if row[axis] == label:
            score = _trained_score(stored, row, setting, measure)
            found.setdefault((row["method"], TRAINED), {})[int(row["seed"])] = score
    column = f"test {setting.whole if measure == 'whole' else 'worst class'}"
    for row in read_rows(results / setting.grid / FILE):
        if row[axis] == label and row["head"] != TRAINED:
            by_seed = found.setdefault((row["method"], row["head"]), {})
            by_seed[int(row["seed"])] = float(row[column])
    return found


def _trained_score(stored: StoredGrid | None, row: Row, setting: Setting, measure: str) -> float:
    if measure == "whole" or stored is None:
        return float(row[f"test {setting.whole}"])
    own = (line for line in stored.classes if line["cell"] == row["cell"])
    return min(float(line[setting.of_class]) for line in own if line[setting.of_class])


def is_won(chosen: tuple[str, str], setting: Setting, results: Path = RESULTS) -> bool:
    """Return whether the method is ahead of every rival of the setting in both measures."""
    verdicts = []
    for measure in MEASURES:
        scores = read_scores(setting, measure, results)
        rivals = [scores[rival, TRAINED] for rival in REQUIRED if (rival, TRAINED) in scores]
        own = scores.get(chosen, {})
        verdicts += [paired_difference(own, rival).verdict for rival in rivals]
    return bool(verdicts) and all(verdict is Verdict.AHEAD for verdict in verdicts)


def tables(
    chosen: tuple[str, str], shown: Sequence[tuple[str, str]], number: str, results: Path = RESULTS
) -> str:
    """Return scores, differences to the rivals, and the settings that are won.

    Args:
        chosen: the method and the classifier that were chosen on validation data.
        shown: further methods and classifiers to show.
        number: number of the table, which begins the numbers of its rows.
        results: folder of the stored results.
    """
    blocks = []
    rows = [*((rival, TRAINED) for rival in RIVALS), *shown, chosen]
    titles = [setting.title for setting in SETTINGS]
    for letter, measure in zip("ab", MEASURES, strict=True):
        every = [read_scores(setting, measure, results) for setting in SETTINGS]
        lines = [
            [f"{number}{letter}.{place}", name_of(row), *(_text(s.get(row, {}), s) for s in every)]
            for place, row in enumerate(rows, start=1)
        ]
        name = "Test accuracy, or AUROC" if measure == "whole" else "Recall, or AUROC, of the worst"
        blocks.append(f"**{name}**" if measure == "whole" else f"**{name} class**")
        blocks.append(markdown(["row", "method", *titles], lines, words=2))
        pairs = [(rival, TRAINED) for rival in RIVALS]
        blocks.append(_differences(chosen, pairs, every, titles))
    won = [setting.title for setting in SETTINGS if is_won(chosen, setting, results)]
    blocks.append(
        f"{name_of(chosen)} is ahead of {', '.join(REQUIRED[:-1])} and {REQUIRED[-1]} in both "
        f"measures in {len(won)} of {len(SETTINGS)} settings{': ' if won else ''}{'; '.join(won)}."
    )
    return "\n\n".join(blocks)


def name_of(row: tuple[str, str]) -> str:
    """Return a method and its classifier as one name."""
    method, head = row
    return method if head == TRAINED else f"{method} + {head} head"


def _text(values: Mapping[int, float], beside: Scores) -> str:
    seeds = max((len(of_row) for of_row in beside.values()), default=0)
    return score_text(values, seeds)


def _differences(
    chosen: tuple[str, str],
    rivals: Sequence[tuple[str, str]],
    every: Sequence[Scores],
    titles: Sequence[str],
) -> str:
    lines = []
    for rival in rivals:
        cells = [
            compare(scores[chosen], scores[rival])
            if chosen in scores and rival in scores
            else MISSING
            for scores in every
        ]
        lines.append([f"{name_of(chosen)} − {name_of(rival)}", *cells])
    return markdown(["difference", *titles], lines)
