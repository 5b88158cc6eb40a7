"""Figures of classes, one against the rest, for many weightings of the samples at once.

A weighting says how often each sample counts. All ones give the score itself, counts of samples
drawn with replacement a replicate of the bootstrap. scikit-learn computes one weighting at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedbb.records import FloatArray, IntArray, Task

if TYPE_CHECKING:
    from scipy.sparse import csr_array  # type: ignore[import-untyped]

BoolArray = npt.NDArray[np.bool_]

BINS = 15
"""Bins of equal width that calibration errors compare probability and frequency in."""

CALIBRATION = ("ece", "top_label_ece")
PER_CLASS = (
    "recall",
    "specificity",
    "precision",
    "f1",
    "auroc",
    "average_precision",
    "brier",
    "ece",
)
"""The figures of a class; Brier score and calibration error are better if lower."""


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Samples with labels and predictions, all (N, C).

    Attributes:
        task: Multi-class or multi-label.
        truth: Whether the sample is of the class.
        known: Whether that is known.
        guess: Whether the model says that it is.
        probability: With which probability.
        ranking: Its order of confidence; probabilities of a confident network may tie.
    """

    task: Task
    truth: BoolArray
    known: BoolArray
    guess: BoolArray
    probability: FloatArray
    ranking: FloatArray


class Figures:
    """Computes the figures of some outcomes for any weights (N, B) of their samples.

    Recall, F1, AUROC and average precision need positive cases, specificity negative ones, AUROC
    and average precision both. Precision needs predictions of the class. Brier score and expected
    calibration error need any case. What lacks them is NaN.
    """

    def __init__(self, outcomes: Outcomes) -> None:
        self.outcomes = outcomes
        truth, known = outcomes.truth & outcomes.known, outcomes.known
        guess = outcomes.guess & known
        gap = np.where(known, truth - outcomes.probability, 0.0)
        self._sums = np.hstack([truth, known & ~truth, guess, truth & guess, gap**2]).T
        self._calibration = [
            _bin_sums(outcomes.probability[:, place], gap[:, place])
            for place in range(truth.shape[1])
        ]
        self._ranks = [
            _RankSums.of(outcomes.truth[:, place], known[:, place], outcomes.ranking[:, place])
            for place in range(truth.shape[1])
        ]

    def of_classes(self, weights: FloatArray) -> dict[str, FloatArray]:
        """Return the figures of `PER_CLASS`, each (C, B)."""
        positive, negative, guessed, hits, squares = np.split(self._sums @ weights, 5)
        gaps = [np.abs(bins @ weights).sum(axis=0) for bins in self._calibration]
        ranks = [rank(weights) for rank in self._ranks]
        f1 = _divide(2 * hits, positive + guessed)
        return {
            "recall": _divide(hits, positive),
            "specificity": _divide(negative - (guessed - hits), negative),
            "precision": _divide(hits, guessed),
            "f1": np.where(positive > 0, f1, np.nan),
            "auroc": np.array([auroc for auroc, _ in ranks]),
            "average_precision": np.array([precision for _, precision in ranks]),
            "brier": _divide(squares, positive + negative),
            "ece": _divide(np.array(gaps), positive + negative),
        }

    def of_samples(self, weights: FloatArray) -> dict[str, FloatArray]:
        """Return the figures of all samples, not of classes, each (B,).

        They are the accuracy over known labels and, for multi-class data, the calibration error of
        the predicted class (Guo et al. 2017).
        """
        outcomes = self.outcomes
        if outcomes.task is Task.MULTILABEL:
            right = ((outcomes.truth == outcomes.guess) & outcomes.known).sum(axis=1)
            return {"accuracy": _divide(right @ weights, outcomes.known.sum(axis=1) @ weights)}
        correct = (outcomes.truth & outcomes.guess).any(axis=1)
        confidence = outcomes.probability.max(axis=1)
        gaps = np.abs(_bin_sums(confidence, correct - confidence) @ weights).sum(axis=0)
        total = weights.sum(axis=0)
        return {
            "accuracy": _divide(correct @ weights, total),
            "top_label_ece": _divide(gaps, total),
        }


def balanced_accuracies(task: Task, figures: dict[str, FloatArray]) -> FloatArray:
    """Return what balanced accuracy is the mean of: recall, with specificity for labels."""
    if task is Task.MULTICLASS:
        return figures["recall"]
    return (figures["recall"] + figures["specificity"]) / 2


@dataclass(frozen=True, eq=False)
class _RankSums:
    """AUROC and average precision of a class by sums over runs of its samples in rising order.

    Only steps (samples of equal rank) with positive cases add to either figure. `sums` has rows for
    the samples below, in, between and above these `steps`, and then for the positive ones in each.
    """

    steps: int
    sums: csr_array

    @classmethod
    def of(cls, truth: BoolArray, known: BoolArray, ranking: FloatArray) -> _RankSums:
        """Return the sums for a class."""
        rows = np.flatnonzero(known)
        rows = rows[np.argsort(ranking[rows], kind="stable")]
        is_positive = truth[rows]
        ranks = ranking[rows]
        step = np.cumsum(np.append(ranks[:1] != ranks[:1], ranks[1:] != ranks[:-1]))
        held, number = np.unique(step[is_positive], return_inverse=True)
        ends = np.stack([np.searchsorted(step, held, side=side) for side in ("left", "right")])
        run = np.searchsorted(ends.T.ravel(), np.arange(len(rows)), side="right")
        shape = (3 * len(held) + 1, len(truth))
        places = np.concatenate([run, 2 * len(held) + 1 + number])
        columns = np.concatenate([rows, rows[is_positive]])
        return cls(len(held), _sparse(np.ones(len(places)), (places, columns), shape))

    def __call__(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return AUROC and average precision, (B,) each; NaN without cases of both kinds."""
        sums = self.sums @ weights
        gained = sums[2 * self.steps + 1 :]
        below = np.cumsum(sums[: 2 * self.steps + 1], axis=0)
        after = np.cumsum(gained, axis=0)
        before = after - gained
        everything, positives = below[-1], gained.sum(axis=0)
        pairs = positives * (everything - positives)
        beaten = (below[:-1:2] - before + below[1::2] - after) / 2
        found, called = positives - before, everything - below[:-1:2]
        share = np.divide(found, called, out=np.zeros_like(found), where=called > 0)
        auroc = _divide((gained * beaten).sum(axis=0), pairs)
        precision = _divide((gained * share).sum(axis=0), np.where(pairs > 0, positives, 0.0))
        # A mean of ones may come out a little above one.
        return np.minimum(auroc, 1.0), np.minimum(precision, 1.0)


def _bin_sums(probability: FloatArray, gap: FloatArray) -> csr_array:
    """Return the gaps (N,) of truth and probability by bin, as rows to be summed with weights."""
    bins = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    return _sparse(gap, (bins, np.arange(len(gap))), (BINS, len(gap)))


def _sparse(
    values: FloatArray, places: tuple[IntArray, IntArray], shape: tuple[int, int]
) -> csr_array:
    # Imported late: scipy takes a tenth as long as torch, and a run needs it only at its end.
    from scipy.sparse import csr_array

    return csr_array((values, places), shape)


def _divide(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Return part / whole, NaN where there is nothing to divide by."""
    undefined = np.full(np.shape(part), np.nan)
    return np.asarray(np.divide(part, whole, out=undefined, where=whole > 0))
