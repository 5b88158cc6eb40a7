"""All scores of one evaluation: by class and as means, with support and bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedbb._util.files import finite_or_none
from fedbb._util.names import nearest
from fedbb.evaluation.figures import CALIBRATION, PER_CLASS, Figures, Outcomes, balanced_accuracies
from fedbb.evaluation.metrics import check_classes, check_entries, check_logits, log_odds, one_hot
from fedbb.records import FloatArray, IntArray, Task
from fedbb.rng import stream

MIN_CASES = 10
"""Cases of a class below which it stays out of the second macro mean."""

REPLICATES = 1000
"""Replicates of the bootstrap."""

_FEWEST_REPLICATES = 200
_LARGEST_WORK = 4_000_000_000
"""Replicates × samples × classes beyond which there are fewer replicates: half a minute."""

_BLOCK = 500_000
"""Weights that are held at once."""

MOST_IN_CONFUSION = 200
"""Classes up to which a report has a confusion matrix."""

_ROUNDED = 10
"""Decimals in a file; beyond them, sums depend on the machine."""

LEVEL = 0.95
"""Confidence level of all intervals."""

Vectors = Mapping[str, FloatArray]


class ScoreInterval(NamedTuple):
    """The ends of an interval of a score."""

    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Intervals:
    """95 % intervals of the bootstrap: low and high ends, NaN where a score is undefined.

    Calibration errors have none: drawing samples again makes them larger than they are.

    Attributes:
        replicates: How often the samples were drawn.
        groups: Number of groups, such as patients, that were drawn; None if samples were.
        per_class: By figure, (2, C).
        macro: By figure, of the mean over all classes.
        macro_min_cases: By figure, of the mean over classes with enough cases.
    """

    replicates: int
    groups: int | None
    per_class: Vectors
    macro: Mapping[str, ScoreInterval]
    macro_min_cases: Mapping[str, ScoreInterval]


@dataclass(frozen=True, eq=False)
class ScoreReport:
    """Scores of one evaluation: each class against the rest, and means over the classes.

    The figures of a class are `recall` (sensitivity), `specificity`, `precision`, `f1`, `auroc`,
    `average_precision` (area under the precision-recall curve), `brier` and `ece` (expected
    calibration error). One that is undefined is NaN and stays out of the means. The means have
    `balanced_accuracy` too, and two figures over samples: `accuracy` and, for multi-class data,
    `top_label_ece`.

    Attributes:
        task: Multi-class or multi-label.
        classes: Names of the classes.
        samples: Number of samples.
        positives: Cases of each class (its support), (C,).
        negatives: Cases against it, (C,); unknown labels count in neither.
        per_class: Figures of each class by name, (C,).
        macro: Mean of each figure over the classes that define it.
        defined: Number of these classes.
        min_cases: The limit below which a class is left out of `macro_min_cases`.
        macro_min_cases: Mean of each figure over the classes with at least `min_cases` cases.
        defined_min_cases: Number of these classes.
        confusion: Samples by true and predicted class, (C, C), for multi-class data; for each label
            by truth and prediction, (C, 2, 2), for multi-label data. As in scikit-learn. Empty
            for more than 200 classes.
        thresholds: Probability above which a class is predicted, (C,); None for the largest
            probability, or one half for multi-label data.
        intervals: 95 % intervals; None if none were asked for.
    """

    task: Task
    classes: tuple[str, ...]
    samples: int
    positives: IntArray
    negatives: IntArray
    per_class: Vectors
    macro: Mapping[str, float]
    defined: Mapping[str, int]
    min_cases: int
    macro_min_cases: Mapping[str, float]
    defined_min_cases: Mapping[str, int]
    confusion: IntArray
    thresholds: FloatArray | None = None
    intervals: Intervals | None = field(default=None, repr=False)

    @property
    def few(self) -> tuple[str, ...]:
        """The classes with fewer than `min_cases` cases, absent ones included."""
        return tuple(
            name
            for name, cases in zip(self.classes, self.positives, strict=True)
            if cases < self.min_cases
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each class, such as `pandas.DataFrame` takes them."""
        ends = {} if self.intervals is None else self.intervals.per_class
        return [
            {
                "class": name,
                "positives": int(self.positives[place]),
                "negatives": int(self.negatives[place]),
                "enough_cases": bool(self.positives[place] >= self.min_cases),
                **{figure: float(values[place]) for figure, values in self.per_class.items()},
                **{
                    f"{figure}_{end}": float(values[row, place])
                    for figure, values in ends.items()
                    for row, end in enumerate(("low", "high"))
                },
            }
            for place, name in enumerate(self.classes)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries, with None for NaN."""
        plain: dict[str, Any] = _rounded(finite_or_none(self))
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> ScoreReport:
        """Return what `to_json` was given; KeyError, TypeError or ValueError if it is damaged."""
        found = plain["intervals"]
        report = cls(
            task=Task(plain["task"]),
            classes=tuple(str(name) for name in plain["classes"]),
            samples=int(plain["samples"]),
            positives=np.array(plain["positives"], dtype=np.int64),
            negatives=np.array(plain["negatives"], dtype=np.int64),
            per_class=_vectors(plain["per_class"]),
            macro=_floats(plain["macro"]),
            defined=dict(plain["defined"]),
            min_cases=int(plain["min_cases"]),
            macro_min_cases=_floats(plain["macro_min_cases"]),
            defined_min_cases=dict(plain["defined_min_cases"]),
            confusion=np.array(plain["confusion"], dtype=np.int64),
            thresholds=None if plain["thresholds"] is None else _array(plain["thresholds"]),
            intervals=None
            if found is None
            else Intervals(
                replicates=int(found["replicates"]),
                groups=None if found["groups"] is None else int(found["groups"]),
                per_class=_vectors(found["per_class"]),
                macro=_ends(found["macro"]),
                macro_min_cases=_ends(found["macro_min_cases"]),
            ),
        )
        _check_lengths(report)
        return report

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {value:.4f}" for name, value in self.macro.items())
        few = f"; fewer than {self.min_cases} cases of {', '.join(self.few)}" if self.few else ""
        return f"<Scores of {self.samples} samples, {len(self.classes)} classes: {figures}{few}>"


def score(
    targets: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    *,
    classes: Sequence[str] | None = None,
    thresholds: npt.ArrayLike | None = None,
    groups: npt.ArrayLike | None = None,
    min_cases: int = MIN_CASES,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> ScoreReport:
    """Score probabilities against the truth: by class, as means, with 95 % intervals.

    >>> report = score([0, 0, 1, 1], [[0.9, 0.1], [0.4, 0.6], [0.2, 0.8], [0.3, 0.7]], min_cases=2)
    >>> report.per_class["specificity"], report.macro["f1"]
    (array([1. , 0.5]), 0.7333333333333334)
    >>> report.confusion.tolist()
    [[1, 1], [0, 2]]

    Args:
        targets: Class numbers or names (N,) for multi-class data; 0, 1 and NaN for unknown (N, C)
            for multi-label data.
        probabilities: (N, C); or (N,), the probability of class 1 of two.
        classes: Names of the classes; numbers by default.
        thresholds: Probability above which a class is predicted, one for each class, or one for
            all. For multi-label data, and for two classes, where that of class 1 counts.
        groups: Group of each sample (N,), such as its patient: intervals then draw groups, since
            samples of one group are not independent.
        min_cases: Cases of a class below which it is left out of a second macro mean.
        replicates: Replicates of the bootstrap; 0 for no intervals.
        seed: Seed of the bootstrap.

    Returns:
        The scores.

    Raises:
        ValueError: Shapes or values do not fit.
    """
    found = _check_probabilities(probabilities)
    names = tuple(map(str, range(found.shape[1]) if classes is None else classes))
    if len(names) != found.shape[1]:
        raise ValueError(f"there are {len(names)} classes and {found.shape[1]} probabilities each")
    truth = _numbers(np.asarray(targets), names)
    task = Task.MULTILABEL if truth.ndim == 2 else Task.MULTICLASS
    sums = found.sum(axis=1)
    if task is Task.MULTICLASS and np.any(np.abs(sums - 1) > 1e-3):
        row = int(np.argmax(np.abs(sums - 1)))
        raise ValueError(f"the probabilities of sample {row} sum to {sums[row]:.6g}, not to 1")
    limits = None
    if thresholds is not None:
        limits = np.broadcast_to(np.asarray(thresholds, dtype=np.float64), len(names))
    outcomes = _outcomes(task, truth, found, found)
    settings = Bootstrap(replicates, seed, None if groups is None else np.asarray(groups))
    return _report(outcomes, names, min_cases, settings, limits)


def score_model(
    logits: FloatArray,
    labels: npt.NDArray[Any],
    task: Task,
    classes: tuple[str, ...],
    *,
    thresholds: FloatArray | None = None,
    min_cases: int = MIN_CASES,
    bootstrap: Bootstrap | None = None,
) -> ScoreReport:
    """Score logits (N, C), whose order survives where probabilities round to 1; see `score`."""
    logits = check_logits(logits)
    outcomes = _outcomes(task, labels, probabilities_of(logits, task), logits)
    if task is Task.MULTICLASS:
        outcomes = replace(outcomes, ranking=log_odds(logits))
    return _report(outcomes, classes, min_cases, bootstrap or Bootstrap(0), thresholds)


def probabilities_of(logits: FloatArray, task: Task) -> FloatArray:
    """Return the probabilities of logits (N, C): softmax for classes, sigmoid for labels."""
    # Imported late, as in figures.py.
    from scipy.special import expit, softmax  # type: ignore[import-untyped]

    return np.asarray(softmax(logits, axis=1) if task is Task.MULTICLASS else expit(logits))


def _outcomes(
    task: Task, labels: npt.NDArray[Any], probability: FloatArray, outputs: FloatArray
) -> Outcomes:
    """Return labels and predictions of the same form for both tasks; ValueError if they misfit.

    Without thresholds the `outputs` decide: the largest one of a sample, or probability one half.
    """
    shape = probability.shape
    if task is Task.MULTICLASS:
        truth = one_hot(check_classes(labels, shape), shape[1])
        guess = one_hot(outputs.argmax(axis=1), shape[1])
        return Outcomes(task, truth, np.ones_like(truth), guess, probability, outputs)
    entries = check_entries(np.asarray(labels, dtype=np.float64), shape)
    guess = outputs > (0.5 if outputs is probability else 0.0)
    return Outcomes(task, entries == 1, ~np.isnan(entries), guess, probability, outputs)


def predict_by_thresholds(
    task: Task, probability: FloatArray, thresholds: npt.ArrayLike
) -> npt.NDArray[np.bool_]:
    """Return which classes are predicted, (N, C): those with a probability above their threshold.

    Of two classes that exclude each other, the threshold of the second decides.

    Raises:
        ValueError: More than two classes exclude each other.
    """
    if task is Task.MULTILABEL:
        return np.asarray(probability > np.asarray(thresholds))
    if probability.shape[1] != 2:
        raise ValueError(
            "thresholds are for multi-label data and for two classes, not for "
            f"{probability.shape[1]} classes of which one is predicted"
        )
    second = probability[:, 1] > np.asarray(thresholds)[1]
    return np.stack([~second, second], axis=1)


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """How intervals are computed: replicates (0 for none), seed, and the group of each sample."""

    replicates: int = REPLICATES
    seed: int = 0
    groups: npt.NDArray[Any] | None = None

    def blocks(self, samples: int, classes: int) -> Iterable[FloatArray]:
        """Yield how often each sample was drawn, (samples, replicates of a block)."""
        number = np.arange(samples)
        if self.groups is not None:
            if self.groups.shape != (samples,):
                raise ValueError(f"groups must have shape ({samples},), not {self.groups.shape}")
            number = np.unique(self.groups, return_inverse=True)[1]
        units = int(number.max()) + 1 if samples else 0
        left = self.used(samples, classes)
        rng = stream(self.seed, "bootstrap")
        while left and units:
            size = min(left, max(16, _BLOCK // samples))
            drawn = rng.integers(0, units, (units, size)) * size + np.arange(size)
            counts = np.bincount(drawn.ravel(), minlength=units * size).reshape(units, size)
            yield counts[number].astype(np.float64)
            left -= size

    def used(self, samples: int, classes: int) -> int:
        """Return the number of replicates for data of this size."""
        affordable = _LARGEST_WORK // max(1, samples * classes)
        return min(self.replicates, max(_FEWEST_REPLICATES, affordable))


def _report(
    outcomes: Outcomes,
    classes: tuple[str, ...],
    min_cases: int,
    bootstrap: Bootstrap,
    thresholds: FloatArray | None = None,
) -> ScoreReport:
    """Return the scores of labels and predictions."""
    if thresholds is not None:
        guess = predict_by_thresholds(outcomes.task, outcomes.probability, thresholds)
        outcomes = replace(outcomes, guess=guess)
    samples, number = outcomes.truth.shape
    truth, known = outcomes.truth & outcomes.known, outcomes.known
    positives, negatives = truth.sum(axis=0), (known & ~truth).sum(axis=0)
    enough = np.asarray(positives >= min_cases)
    present = known.any(axis=0)
    figures = Figures(outcomes)
    once = _Replicates(figures, np.ones((samples, 1)))
    macro, macro_enough = once.means(np.ones(number, dtype=bool)), once.means(enough)
    report = ScoreReport(
        task=outcomes.task,
        classes=classes,
        samples=samples,
        positives=positives,
        negatives=negatives,
        per_class={name: values[:, 0] for name, values in once.classes.items()},
        macro={name: float(values[0]) for name, values in macro.items()},
        defined=once.defined(present),
        min_cases=min_cases,
        macro_min_cases={name: float(values[0]) for name, values in macro_enough.items()},
        defined_min_cases=once.defined(enough & present),
        confusion=_confusion(outcomes) if number <= MOST_IN_CONFUSION else np.empty(0, np.int64),
        thresholds=None if thresholds is None else np.array(thresholds),
    )
    if not bootstrap.replicates or not samples:
        return report
    return replace(report, intervals=_intervals(figures, enough, bootstrap))


class _Replicates:
    """Figures for several weightings of the samples."""

    def __init__(self, figures: Figures, weights: FloatArray) -> None:
        self.classes = figures.of_classes(weights)
        self.samples = figures.of_samples(weights)
        self.balanced = balanced_accuracies(figures.outcomes.task, self.classes)

    def means(self, chosen: npt.NDArray[np.bool_]) -> dict[str, FloatArray]:
        """Return the means over the chosen classes, (B,) each, after the figures of samples."""
        vectors = {"balanced_accuracy": self.balanced, **self.classes}
        return self.samples | {
            name: _mean_of_defined(values[chosen]) for name, values in vectors.items()
        }

    def defined(self, chosen: npt.ArrayLike) -> dict[str, int]:
        """Return how many of the chosen classes define each figure."""
        vectors = {"balanced_accuracy": self.balanced, **self.classes}
        places = np.flatnonzero(chosen)
        return dict.fromkeys(self.samples, len(places)) | {
            name: int((~np.isnan(values[places, 0])).sum()) for name, values in vectors.items()
        }


def _intervals(figures: Figures, enough: npt.NDArray[np.bool_], bootstrap: Bootstrap) -> Intervals:
    shape = figures.outcomes.truth.shape
    every = np.ones(len(enough), dtype=bool)
    parts = []
    for weights in bootstrap.blocks(*shape):
        drawn = _Replicates(figures, weights)
        parts.append((drawn.classes, drawn.means(every), drawn.means(enough)))
    per_class, macro, macro_enough = (
        {
            name: _ends_of(np.concatenate([part[name] for part in kind], axis=-1))
            for name in kind[0]
            if name not in CALIBRATION
        }
        for kind in zip(*parts, strict=True)
    )
    groups = bootstrap.groups
    return Intervals(
        replicates=bootstrap.used(*shape),
        groups=None if groups is None else len(np.unique(groups)),
        per_class=per_class,
        macro={name: ScoreInterval(*map(float, ends)) for name, ends in macro.items()},
        macro_min_cases={
            name: ScoreInterval(*map(float, ends)) for name, ends in macro_enough.items()
        },
    )


def _ends_of(values: FloatArray) -> FloatArray:
    """Return both ends (2, …) of the middle 95 % of the replicates (…, B) that define a figure."""
    values = np.sort(values, axis=-1)  # NaN comes last
    last = np.maximum((~np.isnan(values)).sum(axis=-1) - 1, 0)
    ends = []
    for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2):
        place = share * last
        low = np.floor(place).astype(np.int64)
        high = np.minimum(low + 1, last)
        pair = [np.take_along_axis(values, at[..., None], axis=-1)[..., 0] for at in (low, high)]
        ends.append(pair[0] + (place - low) * (pair[1] - pair[0]))
    return np.stack(ends)


def _mean_of_defined(values: FloatArray) -> FloatArray:
    """Return the mean over classes (C, B) → (B,) without NaN; NaN if there is none."""
    there = ~np.isnan(values)
    number = there.sum(axis=0)
    total = np.where(there, values, 0.0).sum(axis=0)
    undefined = np.full(values.shape[1], np.nan)
    return np.asarray(np.divide(total, number, out=undefined, where=number > 0))


def _confusion(outcomes: Outcomes) -> IntArray:
    truth, guess = outcomes.truth, outcomes.guess
    if outcomes.task is Task.MULTICLASS:
        return truth.T.astype(np.int64) @ guess.astype(np.int64)
    known = outcomes.known
    pairs = [
        [(~truth & ~guess & known), (~truth & guess & known)],
        [(truth & ~guess & known), (truth & guess & known)],
    ]
    return np.array([[cell.sum(axis=0) for cell in row] for row in pairs]).transpose(2, 0, 1)


def _check_probabilities(probabilities: npt.ArrayLike) -> FloatArray:
    found = np.asarray(probabilities, dtype=np.float64)
    if found.ndim == 1:
        found = np.stack([1 - found, found], axis=1)
    if found.ndim != 2 or found.shape[1] == 0:
        raise ValueError(f"probabilities must have shape (samples, classes), not {found.shape}")
    outside = ~((found >= 0) & (found <= 1))
    if outside.any():
        sample, column = np.argwhere(outside)[0]
        raise ValueError(
            f"probabilities[{sample}, {column}] is {found[sample, column]:g}, not in [0, 1]"
        )
    return found


def _numbers(targets: npt.NDArray[Any], classes: tuple[str, ...]) -> npt.NDArray[Any]:
    """Return class names as numbers, and numbers as they are."""
    if targets.dtype.kind not in "UO" or targets.ndim != 1:
        return targets
    number = {name: place for place, name in enumerate(classes)}
    for row, name in enumerate(targets.tolist()):
        if str(name) not in number:
            raise ValueError(
                f"targets[{row}] is {name!r}, which is not a class" + nearest(str(name), classes)
            )
    return np.array([number[str(name)] for name in targets.tolist()], dtype=np.int64)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return round(value, _ROUNDED) if isinstance(value, float) else value


def _array(values: Any) -> FloatArray:
    if not isinstance(values, list):
        raise TypeError("a list is missing")
    if values and isinstance(values[0], list):
        return np.array([_array(row) for row in values])
    # The product refuses text, which numpy would read as a number.
    return np.array([math.nan if v is None else 1.0 * v for v in values], dtype=np.float64)


def _vectors(plain: Mapping[str, Any]) -> dict[str, FloatArray]:
    return {str(name): _array(values) for name, values in plain.items()}


def _floats(plain: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(_array([value])[0]) for name, value in plain.items()}


def _ends(plain: Mapping[str, Any]) -> dict[str, ScoreInterval]:
    return {str(name): ScoreInterval(*_array(ends).tolist()) for name, ends in plain.items()}


def _check_lengths(report: ScoreReport) -> None:
    number = len(report.classes)
    vectors = [report.positives, report.negatives, *report.per_class.values()]
    if set(report.per_class) != set(PER_CLASS) or any(v.shape != (number,) for v in vectors):
        raise ValueError(f"there is not each score of {number} classes")
