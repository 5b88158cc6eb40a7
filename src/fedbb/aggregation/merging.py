"""The merge of a method: how the models of the clients become the next global model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from torch import Tensor

from fedbb.records import ClientUpdate, FloatArray, ModelState
from fedbb.state import Mixture, mix


class Merge(Protocol):
    """The fourth slot of a method.

    Updates arrive one by one, in an order that the recipe fixes; a merge should not hold all of
    them unless it has to compare them. One that is defined for steps of SGD only has an attribute
    `needs_sgd` that is true.
    """

    def __call__(
        self, current: ModelState, updates: Iterable[ClientUpdate], weights: FloatArray
    ) -> ModelState:
        """Return the next global state.

        Args:
            current: the global state that the clients started from; it must not be changed.
            updates: what the clients sent, in a fixed order.
            weights: the weight of each update, in the same order; they sum to one.
        """
        ...


def renormalize(weights: FloatArray, max_weight: float = 1.0) -> FloatArray:
    """Scale the weights of the clients that count in a round to sum to one, none above a bound.

    Weight above the bound goes to the other clients in proportion. If all weights are zero, or if
    the clients are too few for the bound, all count equally.

    >>> renormalize(np.array([0.8, 0.1, 0.1]), max_weight=0.5)
    array([0.5 , 0.25, 0.25])
    """
    if max_weight * weights.size <= 1.0:
        return np.full_like(weights, 1.0 / weights.size)
    bound = np.zeros(weights.size, dtype=bool)
    while True:
        free = np.where(bound, 0.0, weights)
        if not free.sum() > 0:
            free = np.where(bound, 0.0, 1.0)
        rest = 1.0 - max_weight * bound.sum()
        scaled = np.where(bound, max_weight, free * rest / free.sum())
        over = ~bound & (scaled > max_weight)
        if not over.any():
            return np.asarray(scaled)
        bound |= over


def average(
    current: ModelState, updates: Iterable[ClientUpdate], weights: FloatArray
) -> ModelState:
    """Return Σ w_k·θ_k over parameters and buffers (FedAvg's merge)."""
    return mix((update.state for update in updates), weights)


def normalized_average(
    current: ModelState, updates: Iterable[ClientUpdate], weights: FloatArray
) -> ModelState:
    """Return FedNova's merge: each client's change per step, times the mean number of steps.

    θ + Σ_j w_j·a_j · Σ_k (w_k / a_k)·(θ_k − θ), a the effective steps. That holds for parameters; a
    running variance moved by more than the sum of its changes can become negative, so buffers are
    averaged.
    """
    averaged, change = Mixture(), Mixture()
    steps: list[float] = []
    for update, weight in zip(updates, weights.tolist(), strict=True):
        averaged.add(update.state, weight)
        change.add(_step(current, update.state), weight / update.effective_steps)
        steps.append(update.effective_steps)
    if len(set(steps)) == 1:
        return averaged.total()  # FedAvg, and bit for bit
    mean = sum(weight * number for weight, number in zip(weights.tolist(), steps, strict=True))
    return ModelState(_moved(current, change.total(), mean), averaged.total().buffers)


normalized_average.needs_sgd = True  # type: ignore[attr-defined]


def _step(current: ModelState, trained: ModelState) -> ModelState:
    """Return θ_k − θ in float64, of the parameters alone."""
    pairs = {name: (trained.params[name], tensor) for name, tensor in current.params.items()}
    return ModelState({name: to.double() - at.double() for name, (to, at) in pairs.items()}, {})


def _moved(current: ModelState, change: ModelState, steps: float) -> dict[str, Tensor]:
    # Not in place: of a float64 model .double() is the current state's own tensor.
    return {
        name: tensor.double().add(change.params[name], alpha=steps).to(tensor.dtype)
        for name, tensor in current.params.items()
    }
