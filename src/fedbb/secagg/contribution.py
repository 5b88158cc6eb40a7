"""Merges as sums to which each client adds its part alone, so that nobody sees a single part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbb.aggregation.merging import Merge, average, normalized_average
from fedbb.aggregation.validation import clip_update
from fedbb.errors import PrivacyError
from fedbb.records import ClientUpdate, FloatArray, ModelState

_MASSES: dict[Merge, Callable[[ClientUpdate], float]] = {
    average: lambda update: 1.0,
    normalized_average: lambda update: update.effective_steps,
}
"""What a client's change is divided by before it is summed (a of FedNova)."""

SCALARS = 3
"""Numbers after the changes: W·a, W and 1."""


@dataclass(frozen=True)
class Bounds:
    """The most a client may count, and the longest way it may move a model (None: any)."""

    max_weight: float = 1.0
    max_norm: float | None = None


UNBOUND = Bounds()


def check_linear(merge: Merge) -> None:
    """Refuse a merge that is no function of sums over clients."""
    if merge not in _MASSES:
        known = ", ".join(getattr(known, "__name__", str(known)) for known in _MASSES)
        raise PrivacyError(
            f"the merge {getattr(merge, '__name__', merge)!s} needs each client's model, which "
            f"secure aggregation hides; it works with {known}"
        )


def contribute(
    current: ModelState,
    update: ClientUpdate,
    weight: float,
    merge: Merge,
    bounds: Bounds = UNBOUND,
) -> FloatArray:
    """Return, at the client, (W/a·Δ of parameters, W·Δ of float buffers, W·a, W, 1).

    a is 1 where models are averaged; integer buffers stay out. Before Δ the weight is cut to its
    bound, but not in the sums that all is divided by: what is cut off moves the model nowhere.
    """
    check_linear(merge)
    mass = _MASSES[merge](update)
    most = bounds.max_norm
    trained = update.state if most is None else clip_update(current, update.state, most)
    share = min(weight, bounds.max_weight)
    params = _change(current.params, trained.params)
    buffers = _change(_floats(current.buffers), trained.buffers)
    scalars = [weight * mass, weight, 1.0]
    return np.concatenate([params * (share / mass), buffers * share, scalars])


def abstain(current: ModelState) -> FloatArray:
    """Return what a client adds that has nothing to train on: only that it took part."""
    entries = (*current.params.values(), *_floats(current.buffers).values())
    nothing = np.zeros(sum(tensor.numel() for tensor in entries) + SCALARS)
    nothing[-1] = 1.0
    return nothing


def combine(current: ModelState, totals: FloatArray) -> ModelState:
    """Return, at the server, the next state: θ + ΣW·a/ΣW · ΣW/a·Δ/ΣW, and buffers averaged.

    Integer buffers keep the server's values. If all that took part weigh nothing, nothing moves.
    """
    mass, weight, _ = totals[-SCALARS:]
    if weight <= 0:
        return current
    floats = _floats(current.buffers)
    cut = sum(tensor.numel() for tensor in current.params.values())
    params = _moved(current.params, totals[:cut] * (mass / weight / weight))
    buffers = _moved(floats, totals[cut:-SCALARS] / weight)
    return ModelState(params, {**current.buffers, **buffers})


def _floats(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


def _change(current: Mapping[str, Tensor], trained: Mapping[str, Tensor]) -> FloatArray:
    """Return θ_k − θ of all entries in one vector, by their names.

    A state from a file has its entries in another order than one from a network.
    """
    parts = [
        (trained[name].double() - current[name].double()).reshape(-1).numpy()
        for name in sorted(current)
    ]
    return np.concatenate([np.empty(0), *parts])


def _moved(current: Mapping[str, Tensor], change: FloatArray) -> dict[str, Tensor]:
    moved, start = dict(current), 0
    for name in sorted(current):
        tensor = current[name]
        part = torch.from_numpy(change[start : start + tensor.numel()]).reshape(tensor.shape)
        moved[name] = (tensor.double() + part).to(tensor.dtype)
        start += tensor.numel()
    return moved
