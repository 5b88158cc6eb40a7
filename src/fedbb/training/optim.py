"""The optimizer of local training, and how far its momentum carries."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fedbb.training.plan import LocalPlan

_BUFFER = "momentum_buffer"


def make_optimizer(
    model: nn.Module, plan: LocalPlan, momentum: Mapping[str, Tensor] | None
) -> torch.optim.SGD:
    """Return SGD as the plan says, going on with an earlier momentum if one is given."""
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=plan.lr,
        momentum=plan.momentum,
        nesterov=plan.nesterov,
        weight_decay=plan.weight_decay,
    )
    if momentum is not None:
        for name, parameter in model.named_parameters():
            optimizer.state[parameter][_BUFFER] = momentum[name].to(parameter, copy=True)
    return optimizer


def momentum_of(model: nn.Module, optimizer: torch.optim.SGD) -> dict[str, Tensor] | None:
    """Return a copy of the momentum by parameter, None if there is none."""
    named = [(name, optimizer.state[p].get(_BUFFER)) for name, p in model.named_parameters()]
    if any(buffer is None for _, buffer in named):
        return None
    return {name: buffer.detach().cpu().clone() for name, buffer in named}


def step_mass(steps: int, plan: LocalPlan) -> float:
    """Return the weight of all gradients in the sum of `steps` updates, in units of the rate.

    With momentum ρ a gradient goes on to act in later steps: after c ← ρ·c + 1 a step adds c, or
    1 + ρ·c with Nesterov's look ahead. One per step without momentum.

    >>> round(step_mass(2, LocalPlan(momentum=0.9)), 6)
    2.9
    """
    carried, mass = 0.0, 0.0
    for _ in range(steps):
        carried = plan.momentum * carried + 1.0
        mass += 1.0 + plan.momentum * carried if plan.nesterov else carried
    return mass
