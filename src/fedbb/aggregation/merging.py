"""How the clients' models are joined into the next global one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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
