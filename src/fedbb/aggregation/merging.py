"""How the clients' models are joined into the next global one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fedbb.records import ClientUpdate, FloatArray, ModelState
from fedbb.state import mix


class Merge(Protocol):
    """The fourth slot of a method; updates come in client order, weights sum to one."""

    def __call__(
        self, current: ModelState, updates: Sequence[ClientUpdate], weights: FloatArray
    ) -> ModelState:
        """Return the next global state."""
        ...


def average(
    current: ModelState, updates: Sequence[ClientUpdate], weights: FloatArray
) -> ModelState:
    """Return Σ w_k·θ_k over parameters and buffers (FedAvg's merge)."""
    return mix([update.state for update in updates], weights)


def normalized_average(
    current: ModelState, updates: Sequence[ClientUpdate], weights: FloatArray
) -> ModelState:
    """Return FedNova's merge: each client's change per step, times the mean number of steps.

    θ + Σ c_k·(θ_k − θ) with c_k = w_k·Σ_j w_j·a_j / a_k, a the step masses. That holds for
    parameters; a running variance moved by Σc > 1 can become negative, so buffers are averaged.
    """
    masses = np.array([update.step_mass for update in updates])
    # Written so that equal masses give factors of exactly one, and then FedAvg to the bit.
    factors = 1.0 + (weights @ (masses[:, None] / masses[None, :] - 1.0))
    states = [update.state for update in updates]
    averaged = mix(states, weights)
    if np.all(factors == 1.0):
        return averaged
    moved = mix([*states, current], np.append(weights * factors, weights @ (1.0 - factors)))
    return ModelState(moved.params, averaged.buffers)
