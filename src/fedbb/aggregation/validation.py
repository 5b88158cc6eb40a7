"""Whether an update can be a trained model, how far it moved, and how to clip it to a norm."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from fedbb.records import ModelState
from fedbb.state import find_mismatch, is_finite


def update_norm(current: ModelState, update: ModelState) -> float:
    """Return ‖θ_k − θ‖, the one meaning of `max_norm` everywhere.

    It is the L2 norm in float64 over all parameters taken as one vector, or over all float buffers
    if that one is larger. A false running mean spoils a model as much as a false parameter, so
    buffers are bounded too; but they are not added to the parameters, because running statistics
    that settle would use up a bound that suits the parameters. Integer entries do not count.
    A caller that cannot tell parameters from buffers passes all its arrays as parameters.

    Args:
        current: the global state that the client started from.
        update: the state it sent, with the same names, types and shapes.

    Returns:
        The norm; infinite if its square overflows in float64.
    """
    return max(_norm(current.params, update.params), _norm(current.buffers, update.buffers))


def clip_update(current: ModelState, update: ModelState, max_norm: float) -> ModelState:
    """Return θ + (θ_k − θ)·min(1, max_norm / ‖θ_k − θ‖); an update within the norm stays itself."""
    norm = update_norm(current, update)
    if norm <= max_norm:
        return update
    scale = max_norm / norm
    return ModelState(
        _interpolate(current.params, update.params, scale),
        _interpolate(current.buffers, update.buffers, scale),
    )


def validate_update(
    current: ModelState, update: ModelState, max_norm: float = math.inf
) -> str | None:
    """Return why an update cannot be used, None if it can.

    Args:
        current: the global state that the client started from.
        update: the state it sent.
        max_norm: the largest `update_norm` that is allowed.
    """
    name = find_mismatch(current, update)
    if name is not None:
        return f"its model differs from ours in {name!r}"
    if not is_finite(update):
        return "its model holds values that are not finite"
    for name, tensor in update.buffers.items():
        if name.endswith("running_var") and bool((tensor < 0).any()):
            return f"its model has a negative variance in {name!r}"
    norm = update_norm(current, update)
    if not math.isfinite(norm):
        return "the norm of its update overflows"
    if norm > max_norm:
        return f"the norm of its update is {norm:.4g}, and {max_norm:.4g} is allowed"
    return None


def _norm(current: Mapping[str, Tensor], update: Mapping[str, Tensor]) -> float:
    # In the order of names: a state from a file has its entries in another order than one from a
    # network, and the bits of a float sum depend on the order.
    squares = [
        (update[name].double() - tensor.double()).square().sum().item()
        for name, tensor in sorted(current.items())
        if tensor.is_floating_point()
    ]
    return math.sqrt(sum(squares))


def _interpolate(
    current: Mapping[str, Tensor], update: Mapping[str, Tensor], scale: float
) -> dict[str, Tensor]:
    return {
        name: tensor.double().lerp(update[name].double(), scale).to(tensor.dtype)
        if tensor.is_floating_point()
        else update[name]
        for name, tensor in current.items()
    }
