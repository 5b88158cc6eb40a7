"""SCAFFOLD (Karimireddy et al. 2020): gradients corrected by control variates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedbb.aggregation.robust import Uniform
from fedbb.aggregation.server_optimizers import move_parameters, parameter_change
from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.methods.record import Method
from fedbb.penalties.base import Anchors, BoundPenalty, LocalResult, Needs, Step
from fedbb.records import IntArray, ModelFacts, ModelState, RunFacts, Tensors
from fedbb.state import select
from fedbb.statistics import ClientView, Moment, Statistic

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


@dataclass(frozen=True)
class ControlChange(Statistic):
    """c_k after the round less c_k before it, for every parameter."""

    name: ClassVar[str] = SCAFFOLD
    moment: ClassVar[Moment] = "end"

    def shapes(self, model: ModelState, facts: ModelFacts) -> Tensors:
        """Return one tensor for each parameter."""
        return model.params

    def compute(self, view: ClientView) -> Tensors:
        """Return the change; a client that has no control variate yet begins at zero."""
        before, after = (select(kept, f"{self.name}.") for kept in (view.before, view.after))
        return {
            name: control - before.get(name, torch.zeros_like(control))
            for name, control in after.items()
        }


@dataclass(frozen=True)
class ServerControl(ServerStep):
    """c ← c + (1/K)·Σ(c_k' − c_k) over the clients of the round, K the number of all clients.

    Args:
        lr: the server's learning rate, a factor on the model's change; 1 takes the merged model.
    """

    lr: float = 1.0
    name: ClassVar[str] = SCAFFOLD

    def __post_init__(self) -> None:
        if not 0.0 < self.lr < math.inf:
            raise ValueError(f"lr must be a finite number above 0, not {self.lr}")

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return a control variate of zero."""
        return {name: torch.zeros_like(tensor) for name, tensor in first.params.items()}

    def broadcast(self, state: Tensors, number: int) -> Tensors:
        """Return the control variate."""
        return state

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Return the new control variate and the moved model."""
        after = {
            name: (control.double() + turn.sums[f"{self.name}.{name}"] / turn.facts.clients).to(
                control.dtype
            )
            for name, control in state.items()
        }
        if self.lr == 1.0:
            return after, turn.merged
        steps = {name: self.lr * delta for name, delta in parameter_change(turn).items()}
        return after, move_parameters(turn, steps)


def scaffold(*, lr: float = ServerControl.lr) -> Method:
    """Control variates correct the gradients; SGD only.

    Args:
        lr: learning rate of the server.
    """
    return Method(
        "SCAFFOLD",
        penalties=(ControlVariate(),),
        weighting=Uniform(),
        statistics=(ControlChange(),),
        server=(ServerControl(lr),),
    )
