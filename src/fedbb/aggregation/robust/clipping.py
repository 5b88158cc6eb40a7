"""How far a client moved the model, and holding it to a bound."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from fedbb.records import ModelState


def change_norm(current: ModelState, trained: ModelState) -> float:
    """Return ‖θ_k − θ‖ in float64, of the parameters or of the float buffers, whichever is more.

    A false running mean spoils a model as well as a false parameter. The two are not added up,
    for a bound that suits parameters would be used up by statistics that settle.
    """
    return max(_norm(current.params, trained.params), _norm(current.buffers, trained.buffers))


def clip_change(current: ModelState, trained: ModelState, most: float) -> ModelState:
    """Return θ + (θ_k − θ)·min(1, most / ‖θ_k − θ‖)."""
    norm = change_norm(current, trained)
    if norm <= most:
        return trained
    share = most / norm
    return ModelState(
        _part_way(current.params, trained.params, share),
        _part_way(current.buffers, trained.buffers, share),
    )


def _part_way(
    current: Mapping[str, Tensor], trained: Mapping[str, Tensor], share: float
) -> dict[str, Tensor]:
    return {
        name: tensor.double().lerp(trained[name].double(), share).to(tensor.dtype)
        if tensor.is_floating_point()
        else trained[name]
        for name, tensor in current.items()
    }


def _norm(current: Mapping[str, Tensor], trained: Mapping[str, Tensor]) -> float:
    # By name: a state from a file has its entries in another order, and a sum its own bits.
    squares = [
        (trained[name].double() - tensor.double()).square().sum().item()
        for name, tensor in sorted(current.items())
        if tensor.is_floating_point()
    ]
    return math.sqrt(sum(squares))
