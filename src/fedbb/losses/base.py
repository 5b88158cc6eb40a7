"""The first slot of a method: how an error is scored on a client."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from torch import nn

from fedbb.records import FloatArray, LabelCounts, Task


class Loss(Protocol):
    """A frozen spec of hyper-parameters that makes a loss module for one client.

    A spec that inherits from this class must have `bind`; the other methods have defaults, which
    are those of a plain loss.
    """

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the module `(logits, targets) -> Tensor` for a client with these counts."""
        ...

    def supports(self, task: Task) -> bool:
        """Return whether the loss is defined for this task."""
        return True

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return the mean factor on this client's entries compared with the plain loss.

        It acts as a factor on the client's learning rate; at zero the client learns nothing.
        """
        return 1.0

    def mean_weights(self, positive: FloatArray, negative: FloatArray, task: Task) -> FloatArray:
        """Return `mean_weight` of many clients, whose cases are tables (K, C)."""
        counts = (LabelCounts(*cases, samples=0) for cases in zip(positive, negative, strict=True))
        return np.array([self.mean_weight(count, task) for count in counts])

    def diagnostics(self, counts: LabelCounts, task: Task) -> list[str]:
        """Return what the owner of these counts should know about this loss on them."""
        return []
