"""FedDecorr: a penalty on correlations between dimensions of the embedding (Shi et al. 2023)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedbb.penalties.base import Anchors, Needs, Step
from fedbb.penalties.proximal import check_strength

EPSILON = 1e-8
"""Added to a variance before the root, as in the authors' code."""


@dataclass(frozen=True)
class Decorrelation:
    """β times the squared correlations between the dimensions of the batch's embeddings.

    Args:
        beta: the strength of the penalty.
    """

    beta: float = 0.1
    needs: ClassVar[Needs] = Needs(embedding=True)

    def __post_init__(self) -> None:
        check_strength("beta", self.beta)

    def bind(self, anchors: Anchors) -> Callable[[Step], Tensor]:
        """Return the penalty, which depends on the batch alone."""

        def penalty(step: Step) -> Tensor:
            assert step.outputs.embedding is not None  # asked for by `needs.embedding`
            return self.beta * squared_correlations(step.outputs.embedding)

        return penalty


def squared_correlations(embeddings: Tensor) -> Tensor:
    """Return 1/N times the mean of the squared off-diagonals of ZᵀZ, Z the standardized (N, D).

    It is about N times the mean squared correlation: the authors' code divides by N once, and their
    β belongs to that. Zero for a batch of one sample, whose variance is not defined.
    """
    number, width = embeddings.shape
    if number == 1 or width == 1:
        return embeddings.sum() * 0.0
    centred = embeddings - embeddings.mean(dim=0)
    standardized = centred / (EPSILON + centred.var(dim=0)).sqrt()
    products = standardized.T @ standardized
    off = products.square().sum() - products.diagonal().square().sum()
    return off / (width * (width - 1) * number)
