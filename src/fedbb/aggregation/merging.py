"""How the clients' models are joined into the next global one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from torch import Tensor

from fedbb.records import ClientUpdate, FloatArray, ModelState
from fedbb.state import Mixture, mix


class Merge(Protocol):
    """The fourth slot of a method.

    Updates come one by one in an order that the recipe fixes, each with its weight in `weights`,
    which sum to one; a merge that can do without holding them all should.
    """

    def __call__(
        self, current: ModelState, updates: Iterable[ClientUpdate], weights: FloatArray
    ) -> ModelState:
        """Return the next global state."""
        ...


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
