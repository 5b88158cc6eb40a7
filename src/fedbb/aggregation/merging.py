"""Updates of clients and their aggregation: validity, norm and clipping, weights, and the merge."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from fedbb.imbalance import READINGS, Reading, balance_weights, check_balance, dispersion
from fedbb.records import ClientInfo, ClientUpdate, FloatArray, LabelCounts, ModelState
from fedbb.state import Mixture, find_mismatch, is_finite, mix


class Weighting(Protocol):
    """The third slot of a method."""

    def measure(self, counts: LabelCounts) -> float | None:
        """Return, at the client, the one number the server needs of these counts, if any."""
        ...

    def __call__(self, infos: Sequence[ClientInfo]) -> FloatArray:
        """Return, at the server, the weight of each client; they sum to one."""
        ...


@dataclass(frozen=True)
class BySamples:
    """Weights in proportion to the number of samples (FedAvg)."""

    def measure(self, counts: LabelCounts) -> None:
        """Ask for nothing but the size."""
        return

    def __call__(self, infos: Sequence[ClientInfo]) -> FloatArray:
        """Return n_k / Σn."""
        samples = [info.samples for info in infos]
        return balance_weights(np.zeros(len(samples)), samples, gamma=0.0)


@dataclass(frozen=True)
class ClientBalanced:
    """Client Balanced Reweighting: the more balanced its labels, the larger its weight (Eq. 12).

    Args:
        gamma: how far the weights follow the balance, from 0 (FedAvg's weights) to 1.
        reading: which formula of R is used (docs/paper-notes.md).
        floor: the smallest R; a perfectly balanced client would have infinite weight without it.

    Raises:
        ValueError: a value is out of range, or the reading is unknown.
    """

    gamma: float = 1.0
    reading: Reading = "share-std"
    floor: float = 1e-3

    def __post_init__(self) -> None:
        check_balance(self.gamma, self.floor)
        if self.reading not in READINGS:
            allowed = ", ".join(READINGS)
            raise ValueError(f"reading must be one of {allowed}, not {self.reading!r}")

    def measure(self, counts: LabelCounts) -> float:
        """Return R of these counts; a class of which no label is known has no p(y) to compare."""
        known = counts.positive + counts.negative
        seen = known > 0
        return float(dispersion(counts.positive[seen], known[seen], reading=self.reading))

    def __call__(self, infos: Sequence[ClientInfo]) -> FloatArray:
        """Return W of Eq. 12."""
        spread = [np.nan if info.dispersion is None else info.dispersion for info in infos]
        samples = [info.samples for info in infos]
        return balance_weights(spread, samples, gamma=self.gamma, floor=self.floor)


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
    """Return Σ w_k·θ_k over parameters and buffers (FedAvg's merge).

    Args:
        current: the global state before the round, which has no influence here.
        updates: the updates of the round; each is read once, in this order.
        weights: the weight of each update, in the same order; they sum to one.
    """
    return mix((update.state for update in updates), weights)


def normalized_average(
    current: ModelState, updates: Iterable[ClientUpdate], weights: FloatArray
) -> ModelState:
    """Return FedNova's merge: each client's change per step, times the mean number of steps.

    θ + Σ_j w_j·a_j · Σ_k (w_k / a_k)·(θ_k − θ), a the effective steps. That holds for parameters; a
    running variance moved by more than the sum of its changes can become negative, so buffers are
    averaged.

    Args:
        current: the global state θ before the round.
        updates: the updates of the round; each is read once, in this order.
        weights: the weight of each update, in the same order; they sum to one.
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
