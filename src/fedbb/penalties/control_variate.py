"""SCAFFOLD at the client: gradients corrected by control variates (Karimireddy et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedbb.penalties.base import Anchors, BoundPenalty, LocalResult, Needs, Step
from fedbb.records import Tensors

SCAFFOLD = "scaffold"
"""The name of SCAFFOLD's parts: the client's control variate, its change, and the server's."""


@dataclass(frozen=True)
class ControlVariate:
    """Adds c − c_k to the gradient: c is the server's control variate, c_k the client's.

    After the round c_k ← c_k − c + (θ − θ_k) / (η·a), the mean gradient of the client's steps; a is
    the number of plain gradient steps that its steps amount to. Both begin at zero. The value of
    the penalty is 0, so that the reported loss is the supervised one.
    """

    needs: ClassVar[Needs] = Needs(models=2, keeps=SCAFFOLD, sgd=True)

    def bind(self, anchors: Anchors) -> BoundPenalty:
        """Return the correction of this round."""
        server = {name: anchors.broadcast[f"{SCAFFOLD}.{name}"] for name in anchors.start.params}
        own = anchors.kept or {name: torch.zeros_like(c) for name, c in server.items()}
        corrections = [
            (parameter, (server[name] - own[name]).to(parameter.device))
            for name, parameter in anchors.model.named_parameters()
            if parameter.requires_grad
        ]

        def value(step: Step) -> Tensor:
            terms = [
                (correction * (parameter - parameter.detach())).sum()
                for parameter, correction in corrections
            ]
            return torch.stack(terms).sum()

        def keep(result: LocalResult) -> Tensors:
            return {
                name: next_control(own[name], server[name], name, result) for name in sorted(own)
            }

        return BoundPenalty(value, keep=keep)


def next_control(own: Tensor, server: Tensor, name: str, result: LocalResult) -> Tensor:
    """Return c_k − c + (θ − θ_k) / (η·a) of one parameter."""
    moved = result.start.params[name].double() - result.trained.params[name].double()
    mean = moved / (result.lr * result.effective_steps)
    return (own.double() - server.double() + mean).to(own.dtype)
