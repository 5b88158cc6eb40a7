"""FedProx: a proximal penalty, the distance from the global model (Li et al. 2020)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedbb.penalties.base import Anchors, Needs, Step


@dataclass(frozen=True)
class Proximal:
    """(μ/2)·‖θ − θ_global‖² over the trained parameters; buffers are left out.

    Args:
        mu: the strength of the penalty.
    """

    mu: float = 0.001
    needs: ClassVar[Needs] = Needs(models=1)

    def __post_init__(self) -> None:
        check_strength("mu", self.mu)

    def bind(self, anchors: Anchors) -> Callable[[Step], Tensor]:
        """Return the distance from the state that this round started from."""
        pairs = [
            (parameter, anchors.start.params[name].to(parameter.device))
            for name, parameter in anchors.model.named_parameters()
        ]

        def penalty(step: Step) -> Tensor:
            distances = [(parameter - start).square().sum() for parameter, start in pairs]
            return self.mu / 2 * torch.stack(distances).sum()

        return penalty


def check_strength(name: str, value: float) -> None:
    """Check that the strength of a penalty is a finite number of at least 0."""
    if not 0.0 <= value < float("inf"):
        raise ValueError(f"{name} must be a finite number of at least 0, not {value}")
