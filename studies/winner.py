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
from studies.heads import FILE, FORMS, SHARES, TRAINED, title_of
from studies.stored import GRIDS, RESULTS, Row, StoredGrid, read_rows, read_stored
from studies.tables import MISSING, compare, markdown, score_text

RIVALS = ("FedAvg", "FedLC", "FedBB", "FedAvg-scaled (control)", "FedBB-plus")
REQUIRED = RIVALS[:4]
"""The rivals that count for a win; `fedbb-plus` is shown beside them."""

CLOSED = [title_of(form, share) for form in FORMS for share in SHARES]
"""The classifiers in closed form, with their blends."""

TITLES = {
    "whole": "Test accuracy; AUROC on X-rays",
    "worst": "Recall of the worst class; AUROC of the worst finding on X-rays",
}
MEASURES = tuple(TITLES)
NAME = "Balanced classifier"
SEEDS = range(5, 10)
"""Seeds of the tables: no test score of theirs was known when the classifiers were chosen."""


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


CLASSES = (
    Setting("Fashion-MNIST, δ = 0.1", "head-candidates", ("data", "δ = 0.1")),
    Setting("Fashion-MNIST LT, δ = 0.5", "head-candidates", ("data", "LT, δ = 0.5")),
    Setting("CIFAR-10 features, δ = 0.1", "cifar-candidates", ("data", "δ = 0.1")),
    Setting("CIFAR-10 features LT, δ = 0.5", "cifar-candidates", ("data", "LT, δ = 0.5")),
)
FILMS = (
    Setting(
        "X-ray features, sizes", "chest-candidates", ("skew", "sizes, δ = 0.5"), "auroc", "auroc"
    ),
    Setting(
        "X-ray features, labels", "chest-candidates", ("skew", "labels, δ = 0.5"), "auroc", "auroc"
    ),
)
TASKS = (CLASSES, FILMS)
"""Where method and classifiers are chosen, with one class a sample and with several labels: the
settings of the tables, by validation scores of seeds that no other table has."""

BASES = ("FedAvg", "FedLC", "FedBB")
"""Methods that may be chosen: those that every setting of a task has."""

Combination = tuple[str, str]
"""A method and the classifier on top of it."""

Scores = Mapping[Combination, Mapping[int, float]]
"""Scores by seed."""


@dataclass(frozen=True)
class Winner:
    """The balanced classifier as chosen: a method and a closed form for the title of a setting."""

    combinations: Mapping[str, Combination]

    def at(self, setting: Setting) -> Combination:
        """Return the method and the classifier in a setting; without a choice nothing matches."""
        return self.combinations.get(setting.title, ("", ""))

    def __str__(self) -> str:
        return "; ".join(f"{title}: {name_of(row)}" for title, row in self.combinations.items())


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


def choose(results: Path = RESULTS) -> Winner | None:
    """Return the method and the classifiers of the highest validation scores, None without any.

    One method for each kind of labels, and a classifier for each setting: the mean of both measures
    over all seeds decides, for the method with its best classifiers over all settings.
    """
    combinations = {}
    for of_task in TASKS:
        every = {setting: _best_heads(setting, results) for setting in of_task}
        heads = {setting: found for setting, found in every.items() if found}
        shared = [base for base in BASES if heads and all(base in h for h in heads.values())]
        if shared:
            means = {base: np.mean([h[base][1] for h in heads.values()]) for base in shared}
            base = max(means, key=lambda name: means[name])
            combinations |= {setting.title: (base, h[base][0]) for setting, h in heads.items()}
    return Winner(combinations) if combinations else None


def _best_heads(setting: Setting, results: Path) -> dict[str, tuple[str, float]]:
    """Return each base's best closed form in a setting, with its mean score."""
    scores = validation_scores(setting, results)
    found = {}
    for base in BASES:
        known = {h: float(np.mean(scores[base, h])) for h in CLOSED if (base, h) in scores}
        if known:
            found[base] = max(known.items(), key=lambda item: item[1])
    return found


def candidates(number: str, results: Path = RESULTS) -> str:
    """Return the validation scores that the choice rests on: all classes; the worst class."""
    settings = [setting for of_task in TASKS for setting in of_task]
    every = [validation_scores(setting, results) for setting in settings]
    rows = [(method, head) for method in BASES for head in (TRAINED, *CLOSED)]
    lines = [
        [f"{number}.{place}", name_of(row), *(_pair_text(scores.get(row, [])) for scores in every)]
        for place, row in enumerate(rows, start=1)
    ]
    titles = [setting.title for setting in settings]
    return markdown(["row", "candidate", *titles], lines, words=2)


def _pair_text(values: Sequence[FloatArray]) -> str:
    if not values:
        return MISSING
    whole, worst = (spread_of([v[k] for v in values]).mean for k in (0, 1))
    return f"{100 * whole:.1f}; {100 * worst:.1f}"


def read_scores(setting: Setting, measure: str, results: Path = RESULTS) -> Scores:
    """Return the test scores of a setting's seeds, of all classes or of the worst one."""
    found: dict[Combination, dict[int, float]] = {}
    axis, label = setting.at
    stored = read_stored(setting.grid, results)
    for row in [] if stored is None else stored.cells:
        if row[axis] == label and int(row["seed"]) in SEEDS:
            score = _trained_score(stored, row, setting, measure)
            found.setdefault((row["method"], TRAINED), {})[int(row["seed"])] = score
    column = f"test {setting.whole if measure == 'whole' else 'worst class'}"
    for row in read_rows(results / setting.grid / FILE):
        if row[axis] == label and row["head"] != TRAINED and int(row["seed"]) in SEEDS:
            by_seed = found.setdefault((row["method"], row["head"]), {})
            by_seed[int(row["seed"])] = float(row[column])
    return found


def _trained_score(stored: StoredGrid | None, row: Row, setting: Setting, measure: str) -> float:
    if measure == "whole" or stored is None:
        return float(row[f"test {setting.whole}"])
    own = (line for line in stored.classes if line["cell"] == row["cell"])
    return min(float(line[setting.of_class]) for line in own if line[setting.of_class])


def is_won(chosen: Winner, setting: Setting, results: Path = RESULTS) -> bool:
    """Return whether the method is ahead of every rival of the setting in both measures.

    FedLC is no rival on multi-label data, for which it has no form. A rival without results is one
    that the method is not ahead of.
    """
    labels = read_grid(GRIDS / f"{setting.grid}.toml").axes["method"]
    rivals = [rival for rival in REQUIRED if rival in labels]
    verdicts = []
    for measure in MEASURES:
        scores = read_scores(setting, measure, results)
        own = scores.get(chosen.at(setting), {})
        others = [scores.get((rival, TRAINED), {}) for rival in rivals]
        verdicts += [paired_difference(own, other).verdict for other in others]
    return bool(verdicts) and all(verdict is Verdict.AHEAD for verdict in verdicts)


def tables(chosen: Winner, number: str, results: Path = RESULTS) -> str:
    """Return scores, differences to the rivals, and the settings that are won.

    Args:
        chosen: the methods and classifiers that were chosen on validation data.
        number: number of the table, which begins the numbers of its rows.
        results: folder of the stored results.
    """
    blocks = []
    settings = [setting for setting in SETTINGS if read_scores(setting, "whole", results)]
    titles = [setting.title for setting in settings]
    for letter, measure in zip("ab", MEASURES, strict=True):
        every = [read_scores(setting, measure, results) for setting in settings]
        own = [scores.get(chosen.at(s), {}) for s, scores in zip(settings, every, strict=True)]
        trained = {r: [scores.get((r, TRAINED), {}) for scores in every] for r in RIVALS}
        rows = [
            [f"{number}{letter}.{place}", name, *map(_text, scores)]
            for place, (name, scores) in enumerate([*trained.items(), (NAME, own)], start=1)
        ]
        blocks += [f"**{TITLES[measure]}**", markdown(["row", "method", *titles], rows, words=2)]
        gaps = [
            [f"{NAME} − {name}", *(compare(*pair) for pair in zip(own, scores, strict=True))]
            for name, scores in trained.items()
        ]
        blocks.append(markdown(["difference", *titles], gaps))
    won = [setting.title for setting in SETTINGS if is_won(chosen, setting, results)]
    rivals = f"{', '.join(REQUIRED[:-1])} and {REQUIRED[-1]}"
    blocks.append(
        f"The {NAME.lower()} is ahead of {rivals} on seeds {SEEDS[0]} to {SEEDS[-1]} in "
        f"both measures in {len(won)} of {len(SETTINGS)} settings"
        f"{': ' if won else ''}{'; '.join(won)}.\n\nChosen: {chosen}."
    )
    left = [setting.title for setting in SETTINGS if setting not in settings]
    if left:
        blocks.append(f"Not run: {'; '.join(left)}.")
    return "\n\n".join(blocks)


def name_of(row: Combination) -> str:
    """Return a method and its classifier as one name."""
    method, head = row
    return method if head == TRAINED else f"{method} + {head}"


def _text(values: Mapping[int, float]) -> str:
    return score_text(values, len(SEEDS))
