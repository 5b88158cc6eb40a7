"""The balanced classifier: chosen on validation data, then set beside the methods it should beat.

A setting is won where the method is ahead of every rival in the score of all classes and in that
of the worst class, by the study's one rule: a 95 % interval of the paired difference above zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedbb.recipes.grid import read_grid
from fedbb.records import FloatArray
from fedbb.report.statistics import Verdict, paired_difference, spread_of
from studies.heads import FILE, FORMS, SHARES, TRAINED
from studies.stored import GRIDS, RESULTS, Row, StoredGrid, read_rows, read_stored
from studies.tables import MISSING, compare, markdown, score_text

RIVALS = ("FedAvg", "FedLC", "FedBB", "FedAvg-scaled (control)", "FedBB-plus")
REQUIRED = RIVALS[:4]
"""The rivals that count for a win; `fedbb-plus` is shown beside them."""

TITLES = {
    "whole": "Test accuracy; AUROC on X-rays",
    "worst": "Recall of the worst class; AUROC of the worst finding on X-rays",
}
MEASURES = tuple(TITLES)


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


BASE = "FedAvg"
CHOICES = (
    Setting("Fashion-MNIST, δ = 0.1", "head-candidates", ("data", "δ = 0.1")),
    Setting("Fashion-MNIST LT, δ = 0.5", "head-candidates", ("data", "LT, δ = 0.5")),
    Setting("CIFAR-10 features, δ = 0.1", "rates-cifar-features", ("rate", "0.01")),
    Setting("X-ray features, sizes", "rates-chest-features", ("rate", "0.01"), "auroc", "auroc"),
)
"""Where classifier and base are chosen, by validation scores of seeds that no other table has."""

BY_BASE = CHOICES[:2]
"""Where bases differ: on frozen features a classifier in closed form depends on no base."""

Combination = tuple[str, str]
"""A method and the classifier on top of it."""

Scores = Mapping[Combination, Mapping[int, float]]
"""Scores by seed."""


def validation_scores(
    setting: Setting, results: Path = RESULTS
) -> dict[Combination, list[FloatArray]]:
    """Return the validation scores of all classes and of the worst one, an entry for each seed."""
    found: dict[Combination, list[FloatArray]] = {}
    axis, label = setting.at
    for row in read_rows(results / setting.grid / FILE):
        if row[axis] == label:
            pair = [float(row[f"validation {name}"]) for name in (setting.whole, "worst class")]
            found.setdefault((row["method"], row["head"]), []).append(np.array(pair))
    return found


def choose(results: Path = RESULTS) -> Combination | None:
    """Return the method and the classifier of the highest validation scores, None without any.

    First the classifier, on FedAvg and over all of `CHOICES`; then the base, with this classifier
    and over `BY_BASE`. The mean of both measures and all seeds decides.
    """
    every = {setting: validation_scores(setting, results) for setting in CHOICES}
    heads = {head for (method, head) in every[CHOICES[0]] if method == BASE and head != TRAINED}
    by_head = {head: _mean([every[s].get((BASE, head), []) for s in CHOICES]) for head in heads}
    if not by_head or np.isnan(max(by_head.values())):
        return None
    head = max(by_head, key=lambda name: by_head[name])
    bases = {method for (method, of) in every[CHOICES[0]] if of == head}
    by_base = {base: _mean([every[s].get((base, head), []) for s in BY_BASE]) for base in bases}
    return max(by_base, key=lambda name: by_base[name]), head


def candidates(number: str, results: Path = RESULTS) -> str:
    """Return the validation scores that the choice rests on: all classes; the worst class."""
    every = [validation_scores(setting, results) for setting in CHOICES]
    bases = list(dict.fromkeys(method for scores in every[:2] for method, _ in scores))
    rows = [(BASE, head) for head in (TRAINED, *heads_in_order())]
    rows += [(base, head) for base in bases if base != BASE for head in (TRAINED, *FORMS)]
    lines = []
    for place, row in enumerate(rows, start=1):
        cells = [_pair_text(scores.get(row, [])) for scores in every]
        means = [_mean([scores.get(row, []) for scores in part]) for part in (every[:2], every)]
        lines.append([f"{number}.{place}", name_of(row), *cells, *map(_points, means)])
    titles = [setting.title for setting in CHOICES]
    head = ["row", "candidate", *titles, "mean, Fashion-MNIST", "mean, all"]
    return markdown(head, lines, words=2)


def heads_in_order() -> list[str]:
    """Return the names of the classifiers in closed form, with their blends."""
    shares = {share: "" if share == 1.0 else f", {share:g}" for share in SHARES}
    return [f"{form}{shares[share]}" for form in FORMS for share in SHARES]


def _mean(found: Sequence[Sequence[FloatArray]]) -> float:
    """Return the mean over columns, measures and seeds, NaN if a column has none."""
    if not all(found):
        return float("nan")
    return float(np.mean([np.mean(values) for values in found]))


def _points(value: float) -> str:
    return MISSING if np.isnan(value) else f"{100 * value:.1f}"


def _pair_text(values: Sequence[FloatArray]) -> str:
    if not values:
        return MISSING
    whole, worst = (spread_of([v[k] for v in values]).mean for k in (0, 1))
    return f"{100 * whole:.1f}; {100 * worst:.1f}"


def read_scores(setting: Setting, measure: str, results: Path = RESULTS) -> Scores:
    """Return the test scores of a setting, of all classes or of the worst one."""
    found: dict[Combination, dict[int, float]] = {}
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


def is_won(chosen: Combination, setting: Setting, results: Path = RESULTS) -> bool:
    """Return whether the method is ahead of every rival of the setting in both measures.

    FedLC is no rival on multi-label data, for which it has no form. A rival without results is one
    that the method is not ahead of.
    """
    labels = read_grid(GRIDS / f"{setting.grid}.toml").axes["method"]
    rivals = [rival for rival in REQUIRED if rival in labels]
    verdicts = []
    for measure in MEASURES:
        scores = read_scores(setting, measure, results)
        own = scores.get(chosen, {})
        others = [scores.get((rival, TRAINED), {}) for rival in rivals]
        verdicts += [paired_difference(own, other).verdict for other in others]
    return bool(verdicts) and all(verdict is Verdict.AHEAD for verdict in verdicts)


def tables(chosen: Combination, number: str, results: Path = RESULTS) -> str:
    """Return scores, differences to the rivals, and the settings that are won.

    Args:
        chosen: the method and the classifier that were chosen on validation data.
        number: number of the table, which begins the numbers of its rows.
        results: folder of the stored results.
    """
    blocks = []
    rivals = [(rival, TRAINED) for rival in RIVALS]
    titles = [setting.title for setting in SETTINGS]
    for letter, measure in zip("ab", MEASURES, strict=True):
        every = [read_scores(setting, measure, results) for setting in SETTINGS]
        lines = [
            [f"{number}{letter}.{place}", name_of(row), *(_text(s.get(row, {}), s) for s in every)]
            for place, row in enumerate([*rivals, chosen], start=1)
        ]
        blocks += [f"**{TITLES[measure]}**", markdown(["row", "method", *titles], lines, words=2)]
        blocks.append(_differences(chosen, rivals, every, titles))
    won = [setting.title for setting in SETTINGS if is_won(chosen, setting, results)]
    blocks.append(
        f"{name_of(chosen)} is ahead of {', '.join(REQUIRED[:-1])} and {REQUIRED[-1]} in both "
        f"measures in {len(won)} of {len(SETTINGS)} settings{': ' if won else ''}{'; '.join(won)}."
    )
    return "\n\n".join(blocks)


def name_of(row: Combination) -> str:
    """Return a method and its classifier as one name."""
    method, head = row
    return method if head == TRAINED else f"{method} + {head} head"


def _text(values: Mapping[int, float], beside: Scores) -> str:
    seeds = max((len(of_row) for of_row in beside.values()), default=0)
    return score_text(values, seeds)


def _differences(
    chosen: Combination,
    rivals: Sequence[Combination],
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
