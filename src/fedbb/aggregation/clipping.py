"""How far a client moved the model, and holding it to a bound."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from fedbb.aggregation.coordinates import float_entries
from fedbb.records import ModelState


def change_norm(current: ModelState, trained: ModelState) -> float:
    """Return ‖θ_k − θ‖ over parameters and float buffers, in float64.

    Buffers count, for a false running mean spoils a model as well as a false parameter.
    """
    squares = [
        (to.double() - at.double()).square().sum().item()
        for to, at in float_entries([trained, current])
    ]
    return math.sqrt(math.fsum(squares))


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
