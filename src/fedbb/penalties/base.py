"""The second slot of a method: what else a training step is pulled towards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from fedbb.models.base import Outputs


@dataclass(frozen=True)
class Step:
    """What a penalty may look at: the network, its outputs on this batch, where the round began."""

    model: nn.Module
    outputs: Outputs
    anchor: Mapping[str, Tensor]


class Penalty(Protocol):
    """A frozen spec that returns a scalar to add to the loss of this step."""

    def __call__(self, step: Step) -> Tensor:
        """Return the penalty."""
        ...
