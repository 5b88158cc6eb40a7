"""FedRS (Li and Zhan 2021): a softmax in which logits of absent classes are scaled down."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from torch import Tensor, nn

from fedbb.losses.base import Loss
from fedbb.losses.drop_in import IGNORED, CountedLoss, Reduction, multiclass_entries, per_class
from fedbb.records import FloatArray, LabelCounts, Task

Scaling = Literal["absent", "counts"]


@dataclass(frozen=True)
class RestrictedSoftmax(Loss):
    """Hyper-parameters of FedRS's loss, the cross-entropy of r·z.

    Args:
        alpha: the factor r on the logit of an absent class, from 0 to 1; 1 is cross-entropy.
        scaling: "absent" leaves all classes that the client holds at 1; "counts" is the authors'
            code, α + (1 − α)·n/n_max for every class.

    Raises:
        ValueError: a value outside of its range.
    """

    alpha: float = 0.5
    scaling: Scaling = "absent"

    def __post_init__(self) -> None:
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"alpha must be in [0, 1], not {self.alpha}")
        if self.scaling not in get_args(Scaling):
            allowed = ", ".join(get_args(Scaling))
            raise ValueError(f"scaling must be one of {allowed}, not {self.scaling!r}")

    def supports(self, task: Task) -> bool:
        """Support multi-class only: the logits of labels are not compared with each other."""
        return task is Task.MULTICLASS

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the loss for a client with these counts."""
        return RestrictedSoftmaxLoss(counts, self)

    def factors(self, positive: FloatArray) -> FloatArray:
        """Return r of each class."""
        held = positive / max(positive.max(), 1.0) if self.scaling == "counts" else positive > 0
        return np.asarray(self.alpha + (1 - self.alpha) * held)


class RestrictedSoftmaxLoss(CountedLoss):
    """Cross-entropy of logits that are scaled by class.

    Args:
        counts: the label counts of the client.
        spec: the hyper-parameters.
        reduction: "mean", "sum" or "none".
    """

    factor: Tensor

    def __init__(
        self, counts: LabelCounts, spec: RestrictedSoftmax, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(spec, counts, Task.MULTICLASS, reduction, 0.0, IGNORED)
        self._keep("factor", spec.factors(counts.positive))

    def entries(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy of each sample."""
        return multiclass_entries(logits * per_class(self.factor, logits), target, None)
