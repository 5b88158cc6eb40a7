"""Scores of a state, and metrics of logits: accuracy, recall, F1, AUROC, average precision.

Every class is judged by itself, one against the rest. A class without the cases that a figure asks
for gets NaN and stays out of the macro mean; `Scores.defined` counts the classes that went in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedbb._util.files import finite_or_none
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.transforms import normalize
from fedbb.models.base import run_network
from fedbb.records import FloatArray, ModelState, Task
from fedbb.state import restore

BoolArray = npt.NDArray[np.bool_]

_CHANCE = 0.5
"""The AUROC of scores that are all equal."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Figures of one evaluation: macro means, vectors (C,) per class, and classes per macro mean.

    `macro` and `defined` have the same keys. Accuracy is a mean over known labels, not classes; its
    entry in `defined` counts the classes that have any.
    """

    samples: int
    macro: dict[str, float]
    per_class: dict[str, FloatArray]
    defined: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries, with None for NaN."""
        return {
            "samples": self.samples,
            "macro": finite_or_none(self.macro),
            "per_class": finite_or_none(self.per_class),
            "defined": dict(self.defined),
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Scores:
        """Return what `as_json` was given."""
        macro = dict(zip(plain["macro"], _vector(plain["macro"].values()).tolist(), strict=True))
        per_class = {name: _vector(values) for name, values in plain["per_class"].items()}
        return cls(int(plain["samples"]), macro, per_class, dict(plain["defined"]))


def _vector(values: Iterable[float | None]) -> FloatArray:
    # The product refuses text, which numpy would read as a number.
    return np.array([math.nan if v is None else 1.0 * v for v in values], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _Cases:
    """All (N, C): what is so, what was said, which of it is known, and the order of confidence."""

    truth: BoolArray
    guess: BoolArray
    known: BoolArray
    ranking: FloatArray


def score_multiclass(logits: npt.ArrayLike, labels: npt.ArrayLike) -> Scores:
    """Score logits (N, C) against labels (N,); the guess is the largest logit, the first if equal.

    Balanced accuracy is the mean recall of the classes that occur. AUROC and average precision rank
    the samples by softmax probability.
    """
    logits = check_logits(logits)
    labels = check_classes(np.asarray(labels), logits.shape)
    guesses = logits.argmax(axis=1)
    truth, guess = (one_hot(which, logits.shape[1]) for which in (labels, guesses))
    cases = _Cases(truth, guess, known=np.ones_like(truth), ranking=log_odds(logits))
    per_class = _per_class(cases)
    return _summarize(cases, labels == guesses, per_class["recall"], per_class)


def score_multilabel(logits: npt.ArrayLike, labels: npt.ArrayLike) -> Scores:
    """Score logits (N, C) against labels (N, C) of 0, 1 and NaN for unknown, which counts nowhere.

    The guess is positive above probability 0.5. Balanced accuracy is the mean of recall and
    specificity, averaged over the classes with both cases.
    """
    logits = check_logits(logits)
    labels = check_entries(np.asarray(labels, dtype=np.float64), logits.shape)
    cases = _Cases(labels == 1, logits > 0, known=~np.isnan(labels), ranking=logits)
    right = (cases.truth == cases.guess)[cases.known]
    per_class = _per_class(cases)
    return _summarize(cases, right, (per_class["recall"] + _specificity(cases)) / 2, per_class)


def log_odds(logits: FloatArray) -> FloatArray:
    """Return log(p / (1 − p)) of the softmax probabilities p, both (N, C), without rounding p to 1.

    The probabilities of a confident network all round to 1, and would tie samples whose logits
    differ.
    """
    nothing = np.full((len(logits), 1), -np.inf)
    before = np.logaddexp.accumulate(logits, axis=1)[:, :-1]
    after = np.logaddexp.accumulate(logits[:, ::-1], axis=1)[:, -2::-1]
    others = np.logaddexp(np.hstack([nothing, before]), np.hstack([after, nothing]))
    return np.asarray(logits - others, dtype=np.float64)


def one_hot(classes: npt.NDArray[Any], number: int) -> BoolArray:
    """Return whether each sample is of each class, (N, C)."""
    return np.asarray(classes[:, None] == np.arange(number), dtype=np.bool_)


def _summarize(
    cases: _Cases, right: BoolArray, balanced: FloatArray, per_class: dict[str, FloatArray]
) -> Scores:
    names = ("f1", "auroc", "average_precision")
    vectors = {"balanced_accuracy": balanced, **{name: per_class[name] for name in names}}
    macro = {name: _mean(vector[~np.isnan(vector)]) for name, vector in vectors.items()}
    defined = {name: int((~np.isnan(vector)).sum()) for name, vector in vectors.items()}
    return Scores(
        samples=len(cases.truth),
        macro={"accuracy": _mean(right), **macro},
        per_class=per_class,
        defined={"accuracy": int(cases.known.any(axis=0).sum()), **defined},
    )


def _mean(values: npt.NDArray[Any]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _per_class(cases: _Cases) -> dict[str, FloatArray]:
    positives = (cases.truth & cases.known).sum(axis=0)
    guesses = (cases.guess & cases.known).sum(axis=0)
    hits = (cases.truth & cases.guess & cases.known).sum(axis=0)
    recall = _divide(hits, positives)
    f1 = _divide(2 * hits, positives + guesses)
    return {
        "recall": recall,
        "f1": np.where(positives > 0, f1, np.nan),
        **_ranks(cases),
    }


def _ranks(cases: _Cases) -> dict[str, FloatArray]:
    """Return AUROC and average precision of each class; NaN where positives or negatives lack."""
    areas = np.full((2, cases.truth.shape[1]), np.nan)
    for index, known in enumerate(cases.known.T):
        truth = cases.truth[known, index]
        if truth.any() and not truth.all():
            # A mean of ones may come out a little above one.
            areas[:, index] = np.minimum(1.0, rank_areas(truth, cases.ranking[known, index]))
    return {"auroc": areas[0], "average_precision": areas[1]}


def rank_areas(truth: BoolArray, ranking: FloatArray) -> tuple[float, float]:
    """Return the area under the ROC curve and the average precision of a class.

    They have the bits of scikit-learn's functions, which on small test sets take longer for their
    checks than a client for a step, and as long to import as torch.

    >>> rank_areas(np.array([False, True, False, True]), np.array([0.1, 0.3, 0.5, 0.7]))
    (0.75, 0.8333333333333333)

    Args:
        truth: whether a sample is of the class, (N,), some of both kinds.
        ranking: the order of confidence that it is, (N,).
    """
    order = np.argsort(-ranking, kind="stable")
    ranks = ranking[order]
    last = np.append(np.flatnonzero(ranks[1:] != ranks[:-1]), len(ranks) - 1)
    hits = np.cumsum(truth[order], dtype=np.float64)[last]
    misses = last + 1.0 - hits
    found = np.diff(hits / hits[-1], prepend=0.0)
    # Summed from the last rank to the first, as scikit-learn does.
    precision = float(np.sum((found * (hits / (hits + misses)))[::-1].copy()))
    # Points on a straight line stay out of the sum, as in scikit-learn: its rounding depends on it.
    bent = np.ones(len(last), dtype=bool)
    bent[1:-1] = (np.diff(hits, 2) != 0) | (np.diff(misses, 2) != 0)
    x, y = (np.append(0.0, part[bent] / part[-1]) for part in (misses, hits))
    return float((np.diff(x) * (y[1:] + y[:-1]) / 2.0).sum()), precision


def _specificity(cases: _Cases) -> FloatArray:
    negatives = ~cases.truth & cases.known
    return _divide((negatives & ~cases.guess).sum(axis=0), negatives.sum(axis=0))


def _divide(part: npt.NDArray[np.int_], whole: npt.NDArray[np.int_]) -> FloatArray:
    """Return part / whole, NaN where there is nothing to divide by."""
    undefined = np.full(part.shape, np.nan)
    return np.asarray(np.divide(part, whole, out=undefined, where=whole > 0))


def own_accuracy(recall: FloatArray, cases: FloatArray) -> float:
    """Return a client's own accuracy: the mean of the recalls (C,), weighted by its cases (C,).

    It is the accuracy on a test set whose classes have the client's proportions. A class without
    test images has no recall and stays out; NaN if the client holds only such classes.

    >>> own_accuracy(np.array([0.9, 0.5]), np.array([30.0, 10.0]))
    0.8
    """
    held = (cases > 0) & ~np.isnan(recall)
    if not held.any():
        return float("nan")
    return float(recall[held] @ cases[held] / cases[held].sum())


def is_collapsed(per_class: Mapping[str, Sequence[float | None]]) -> bool:
    """Return whether a model gives every sample the same scores: all ranks are at chance.

    Every class is then predicted for all samples or for none.
    """
    ranks = [value for value in per_class["auroc"] if value is not None]
    found = [value for value in per_class["recall"] if value is not None]
    at_chance = all(value == _CHANCE for value in ranks)
    return bool(ranks) and at_chance and all(value in (0.0, 1.0) for value in found)


def check_logits(logits: npt.ArrayLike) -> FloatArray:
    """Return logits (N, C) in float64; ValueError names the first that is not finite."""
    checked = np.asarray(logits, dtype=np.float64)
    if checked.ndim != 2 or checked.shape[1] == 0:
        raise ValueError(f"logits must have shape (samples, classes), not {checked.shape}")
    if not np.isfinite(checked).all():
        sample, column = np.argwhere(~np.isfinite(checked))[0]
        raise ValueError(f"logits[{sample}, {column}] is {checked[sample, column]}, not finite")
    return checked


def check_classes(labels: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return class numbers (N,) for outputs of this shape; ValueError names one that is none."""
    if labels.shape != shape[:1]:
        raise ValueError(f"labels must have shape {shape[:1]} for these logits, not {labels.shape}")
    outside = ~np.isin(labels, np.arange(shape[1]))
    if outside.any():
        wrong = labels[outside][0]
        raise ValueError(f"label {wrong} is not a class; allowed: 0 to {shape[1] - 1}")
    return labels


def check_entries(labels: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Return labels (N, C) of 0, 1 and NaN for outputs of this shape; ValueError for others."""
    if labels.shape != shape:
        raise ValueError(f"labels must have shape {shape} like the logits, not {labels.shape}")
    strange = ~np.isnan(labels) & ~np.isin(labels, (0, 1))
    if strange.any():
        raise ValueError(f"label {labels[strange][0]} is not 0, 1 or NaN for unknown")
    return labels


@dataclass(frozen=True, eq=False)
class Scorer:
    """Scores states on named sets of examples.

    Args:
        model: the network that states are restored into.
        dataset: its task, mean and standard deviation are used.
        examples: the examples by name, such as "validation" and "test".
        batch_size: the number of examples per forward pass; the bits of logits depend on it.
        device: the torch device.
        networks: the networks by number, where clients have different ones.
    """

    model: nn.Module
    dataset: Dataset
    examples: Mapping[str, Examples]
    batch_size: int = 256
    device: str = "cpu"
    networks: Sequence[nn.Module] = ()

    def of(self, network: int) -> Scorer:
        """Return the scorer of states of the network of this number."""
        return replace(self, model=self.networks[network], networks=()) if self.networks else self

    def __call__(self, state: ModelState, network: int = 0) -> dict[str, Scores]:
        """Return the scores of this state, of the network of this number, on every set."""
        return {
            name: score_logits(logits, self.examples[name].labels, self.dataset.task)
            for name, logits in self.outputs(state, network=network).items()
        }

    def outputs(
        self, state: ModelState, names: Sequence[str] | None = None, network: int = 0
    ) -> dict[str, FloatArray]:
        """Return the logits (N, C) of this state for every set, or for those of these names."""
        scorer = self.of(network)
        restore(scorer.model, state)
        parts = {name: self.examples[name] for name in (self.examples if names is None else names)}
        return {name: scorer.predict(part, 0, len(part.labels)) for name, part in parts.items()}

    def predict(self, examples: Examples, start: int, stop: int) -> FloatArray:
        """Return the logits (N, C) of the examples from `start` to `stop` by the model as it is.

        Parts that begin at whole batches have the same bits as all examples at once.
        """
        self.model.eval()
        parts = []
        with torch.inference_mode():
            for first in range(start, stop, self.batch_size):
                # A copy, since torch will not share the memory of a file that is mapped read-only.
                images = torch.tensor(examples.inputs[first : min(first + self.batch_size, stop)])
                images = normalize(images, self.dataset.mean, self.dataset.std).to(self.device)
                parts.append(run_network(self.model, images).logits.double().cpu().numpy())
        return np.concatenate(parts)


def score_logits(logits: FloatArray, labels: npt.ArrayLike, task: Task) -> Scores:
    """Return the scores of logits (N, C); FloatingPointError if they are not finite."""
    if not np.all(np.isfinite(logits)):
        raise FloatingPointError("gives outputs that are not finite")
    score = score_multiclass if task is Task.MULTICLASS else score_multilabel
    return score(logits, labels)
