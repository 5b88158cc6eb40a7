"""FedIR (Hsu, Qi and Brown 2020): samples weighted by how rare their class is at the client.

The weight of class y is p(y)/q(y): p is its share in the federation, q its share at the client. If
the images of a class look alike everywhere, the client's mean loss then estimates the federation's.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn

from fedbb.losses.base import Loss
from fedbb.losses.drop_in import (
    IGNORED,
    CountedLoss,
    Reduction,
    multiclass_entries,
    multilabel_entries,
)
from fedbb.records import FloatArray, LabelCounts, Task, Tensors

Normalize = Literal["client", "batch"]

FEDERATION = "label-counts.cases"
"""The cases for and against each class in the federation, (2, C), as the server broadcasts them."""


class CaseWeights(NamedTuple):
    """Weights of the cases for and against each class, (C,)."""

    positive: FloatArray
    negative: FloatArray


@dataclass(frozen=True)
class ImportanceWeighted(Loss):
    """Hyper-parameters of FedIR's loss.

    Args:
        normalize: "batch" divides by the sum of the weights in each batch, as public
            re-implementations do; "client" makes the mean weight of the client's samples one, and
            a batch with a rare sample takes a step that is many times as large.
        most: the largest weight; the others are scaled up so that their mean stays one.

    Raises:
        ValueError: a value outside of its range.
    """

    normalize: Normalize = "batch"
    most: float = math.inf

    def __post_init__(self) -> None:
        if self.normalize not in get_args(Normalize):
            allowed = ", ".join(get_args(Normalize))
            raise ValueError(f"normalize must be one of {allowed}, not {self.normalize!r}")
        if not self.most >= 1.0:
            raise ValueError(f"most must be at least 1, not {self.most}")

    def receive(self, broadcast: Tensors) -> Loss:
        """Return the loss of a round, given the label counts of the federation."""
        positive, negative = broadcast[FEDERATION].double().numpy()
        return _ReceivedWeights(self, LabelCounts(positive, negative, samples=0))

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the loss of a client that is a federation of its own: the plain loss."""
        return ImportanceWeightedLoss(counts, counts, task, self)


@dataclass(frozen=True)
class _ReceivedWeights(Loss):
    """FedIR's loss in a round, in which the counts of the federation are known."""

    spec: ImportanceWeighted
    federation: LabelCounts

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the loss for a client with these counts."""
        return ImportanceWeightedLoss(counts, self.federation, task, self.spec)


class ImportanceWeightedLoss(CountedLoss):
    """Cross-entropy with samples weighted by the federation's share over the client's.

    Args:
        counts: the label counts of the client.
        federation: the sum of the label counts of all clients.
        task: multi-class or multi-label.
        spec: the hyper-parameters.
        reduction: "mean", "sum" or "none".
    """

    positive_weight: Tensor
    negative_weight: Tensor

    def __init__(
        self,
        counts: LabelCounts,
        federation: LabelCounts,
        task: Task,
        spec: ImportanceWeighted,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(spec, counts, task, reduction, 0.0, IGNORED)
        weights = importance_weights(counts, federation, task, most=spec.most)
        self._keep("positive_weight", weights.positive)
        self._keep("negative_weight", weights.negative)
        self.by_batch = spec.normalize == "batch" and reduction == "mean"

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the weighted loss; the mean of a batch is divided by the sum of its weights."""
        loss = super().forward(input, target)
        if not self.by_batch:
            return loss
        weights = self._weights_of(target)
        total = weights.sum().clamp(min=torch.finfo(weights.dtype).tiny)
        return loss * (weights.numel() / total)  # exactly 1 where all weights are

    def _weights_of(self, target: Tensor) -> Tensor:
        """Return the weights of the known labels of a batch."""
        if not self.multilabel:
            return self.positive_weight[target[target != self.ignore_index].long()]
        weights = torch.where(target == 1, self.positive_weight, self.negative_weight)
        return weights[~target.isnan()]

    def entries(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the weighted loss of each sample or label."""
        if self.multilabel:
            return multilabel_entries(logits, target, self.positive_weight, self.negative_weight)
        return multiclass_entries(logits, target, self.positive_weight)


def importance_weights(
    counts: LabelCounts, federation: LabelCounts, task: Task, *, most: float = math.inf
) -> CaseWeights:
    """Return p(y)/q(y) over what a client holds, of mean one over its samples.

    Multi-class: w_c = n_c·n_k / (n_kc·N_k), N_k the federation's samples of the classes that the
    client holds; 0 for the others. Multi-label: each label is such a pair of cases.

    >>> of = lambda *n: LabelCounts(np.array(n, float), np.zeros(len(n)), samples=0)
    >>> importance_weights(of(6, 3, 1), of(50, 30, 20), Task.MULTICLASS).positive.round(3)
    array([0.833, 1.   , 2.   ])

    Args:
        counts: the label counts of the client.
        federation: the sum over all clients.
        task: multi-class or multi-label.
        most: the largest weight.
    """
    if task is Task.MULTICLASS:
        weights = _ratios(counts.positive[None], federation.positive[None], most)[0]
        return CaseWeights(weights, np.ones_like(weights))
    own = np.stack((counts.positive, counts.negative), axis=1)
    whole = np.stack((federation.positive, federation.negative), axis=1)
    return CaseWeights(*_ratios(own, whole, most).T)


def _ratios(own: FloatArray, whole: FloatArray, most: float) -> FloatArray:
    """Return the weights of each row of cases; the mean over the cases of a row is one."""
    held = own > 0
    held_whole = np.where(held, whole, 0.0).sum(axis=1, keepdims=True)
    # Products of whole numbers before the division: equal shares give exactly 1.
    over = own * held_whole
    raw = np.divide(
        whole * own.sum(axis=1, keepdims=True), over, out=np.zeros_like(own), where=over > 0
    )
    return _bounded(raw, own, most)


def _bounded(weights: FloatArray, cases: FloatArray, most: float) -> FloatArray:
    """Cut weights at `most`, and scale those below it so that the mean over the cases stays one."""
    if not np.any(weights > most):
        return weights
    total = cases.sum(axis=1, keepdims=True)
    bounded = weights.copy()
    for _ in range(weights.shape[1]):  # each pass cuts at least one more weight, or none is above
        is_cut = bounded >= most
        cut = np.where(is_cut, most * cases, 0.0).sum(axis=1, keepdims=True)
        free = np.where(is_cut, 0.0, bounded * cases).sum(axis=1, keepdims=True)
        factor = np.divide(total - cut, free, out=np.ones_like(free), where=free > 0)
        bounded = np.minimum(np.where(is_cut, most, bounded * factor), most)
    return bounded
