"""A linear head trained by plain SGD on features that the server holds (CCVR, CReFF)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbb.classifiers.head import Head
from fedbb.records import IntArray

Order = Callable[[int], IntArray]
"""Returns the order of the features in an epoch, given its number from 0."""


@dataclass(frozen=True)
class Retraining:
    """How a head is trained on features.

    Args:
        epochs: passes over the features; 0 leaves the head as it is.
        batch_size: features per step.
        lr: the learning rate.

    Raises:
        ValueError: a value outside of its range.
    """

    epochs: int
    batch_size: int
    lr: float

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.batch_size < 1:
            raise ValueError(
                "epochs must be at least 0 and batch_size at least 1, not "
                f"{self.epochs} and {self.batch_size}"
            )
        if not 0.0 < self.lr < float("inf"):
            raise ValueError(f"the learning rate must be a finite number above 0, not {self.lr}")

    def __call__(self, head: Head, features: Tensor, labels: Tensor, order: Order) -> Head:
        """Return the head after plain SGD on the cross-entropy.

        Args:
            head: where the training starts.
            features: (N, D).
            labels: class numbers (N,).
            order: returns the order of an epoch.
        """
        weight, bias = head.weight.clone(), head.bias.clone()
        truth = torch.nn.functional.one_hot(labels, len(bias)).to(weight)
        for epoch in range(self.epochs if len(labels) else 0):
            places = torch.from_numpy(order(epoch))
            for batch in places.split(self.batch_size):
                inputs = features[batch]
                # The gradient of the mean cross-entropy in closed form.
                error = torch.addmm(bias, inputs, weight.T).softmax(dim=1) - truth[batch]
                rate = self.lr / len(batch)
                weight.addmm_(error.T, inputs, alpha=-rate)
                bias.sub_(error.sum(dim=0), alpha=rate)
        return Head(weight, bias)
