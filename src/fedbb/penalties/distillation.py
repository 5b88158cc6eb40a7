"""CLIP2FL's client side: logits drawn towards those of a teacher (Shi et al. 2024)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedbb.models.base import run_network
from fedbb.penalties.base import Anchors, Needs, Step
from fedbb.penalties.proximal import check_strength

Teacher = nn.Module | Callable[[Tensor], Tensor]
"""Takes a batch as the network gets it, and returns its logits (N, C)."""


@dataclass(frozen=True)
class Distillation:
    """α·T² times the divergence of the student's softened shares from the teacher's.

    Args:
        teacher: a network or a function; it is not trained.
        alpha: the strength of the penalty.
        temperature: divides the logits of both.
    """

    teacher: Teacher
    alpha: float = 1.0
    temperature: float = 3.0
    needs: ClassVar[Needs] = Needs(models=1, forwards=1)

    def __post_init__(self) -> None:
        check_strength("alpha", self.alpha)
        if not 0.0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be a finite number above 0, not {self.temperature}")

    def bind(self, anchors: Anchors) -> Callable[[Step], Tensor]:
        """Return the penalty; a network is copied, and works as in evaluation."""
        logits_of = _frozen(self.teacher) if isinstance(self.teacher, nn.Module) else self.teacher

        def penalty(step: Step) -> Tensor:
            if self.alpha == 0.0:
                return step.outputs.logits.new_zeros(())
            with torch.no_grad():
                wanted = logits_of(step.images).to(step.outputs.logits)
            return self.alpha * distill(step.outputs.logits, wanted, self.temperature)

        return penalty


def _frozen(teacher: nn.Module) -> Callable[[Tensor], Tensor]:
    network = copy.deepcopy(teacher).eval().requires_grad_(False)
    return lambda images: run_network(network.to(images.device), images).logits


def distill(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return T² times the batch mean of KL(softmax(t/T) ‖ softmax(s/T)) of logits (N, C)."""
    wanted = (teacher / temperature).log_softmax(dim=1)
    found = (student / temperature).log_softmax(dim=1)
    divergence = (wanted.exp() * (wanted - found)).sum(dim=1).mean()
    return temperature**2 * divergence
