"""Byzantine-robust aggregation: Krum, coordinate-wise median and trimmed mean.

All of them compare clients, so they hold every client's model at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbb.aggregation.merging import renormalize
from fedbb.records import ClientInfo, ClientUpdate, FloatArray, IntArray, LabelCounts, ModelState
from fedbb.state import find_mismatch

WIDTH = 2**16
"""Coordinates in a block, so that many clients of a large model are never held twice."""


@dataclass(frozen=True)
class Krum:
    """Selects the clients whose nearest neighbors are nearest (Blanchard et al. 2017).

    Args:
        byzantine: how many malicious clients f it tolerates among n ≥ 2·f + 3.
        many: keep the n − f best (multi-Krum; all of them at f = 0) instead of the best one.
    """

    byzantine: int
    many: bool = False

    @property
    def name(self) -> str:
        """The rule as a recipe names it."""
        return "multi-krum" if self.many else "krum"

    @property
    def least(self) -> int:
        """The smallest number of clients for which its guarantee holds."""
        return 2 * self.byzantine + 3

    def __call__(self, scores: FloatArray) -> IntArray:
        """Return the positions of the selected scores in rising order; of equal ones the first."""
        number = len(scores) - self.byzantine if self.many else 1
        return np.sort(np.argsort(scores, kind="stable")[:number])


def krum_scores(distances: FloatArray, byzantine: int) -> FloatArray:
    """Return each client's Σ of squared distances (n, n) to its n − f − 2 nearest others.

    >>> apart = np.subtract.outer([0.0, 1.0, 9.0], [0.0, 1.0, 9.0]) ** 2
    >>> krum_scores(apart, byzantine=0)
    array([ 1.,  1., 64.])
    """
    number = len(distances)
    if number < 2 * byzantine + 3:
        raise ValueError(f"{number} clients are too few to tolerate {byzantine} Byzantine ones")
    others = distances[~np.eye(number, dtype=bool)].reshape(number, number - 1)
    # Summed from the nearest on, so that the order of clients changes no bit.
    return np.asarray(np.sort(others, axis=1)[:, : number - byzantine - 2].sum(axis=1))


def squared_distances(states: Sequence[ModelState]) -> FloatArray:
    """Return ‖θ_i − θ_j‖² (n, n) over parameters and float buffers, in float64."""
    total = torch.zeros(len(states), len(states), dtype=torch.float64)
    for tensors in _float_entries(states):
        for values in _blocks(tensors):
            # By differences: the quicker way by products loses what near models differ in.
            apart = torch.cdist(values, values, compute_mode="donot_use_mm_for_euclid_dist")
            total += apart.square()
    return np.asarray(total.numpy())


def coordinate_median(
    current: ModelState, updates: Iterable[ClientUpdate], weights: FloatArray
) -> ModelState:
    """Return the median of each coordinate (Yin et al. 2018), a merge.

    If fewer than half of the clients are malicious, it lies between honest values. All clients
    count equally, whatever their weights: a malicious client could win a weighted median by
    declaring a large weight.
    """
    # By client and stable, so that not even the sign of a zero depends on who came first.
    ordered = sorted(updates, key=lambda update: update.client)
    return _merge_coordinates([update.state for update in ordered], median)


def median(values: Tensor) -> Tensor:
    """Return the median of each column, the mean of the middle two if their number is even."""
    ordered = values.sort(dim=0, stable=True).values
    number = len(values)
    return (ordered[(number - 1) // 2] + ordered[number // 2]) / 2


@dataclass(frozen=True)
class Uniform:
    """Weighting under which every client that has samples counts the same, as in a median."""

    def measure(self, counts: LabelCounts) -> None:
        """Ask for nothing."""
        return

    def __call__(self, infos: Sequence[ClientInfo]) -> FloatArray:
        """Return one over the number of clients that have samples, 0 for the others."""
        return renormalize(np.array([info.samples > 0 for info in infos], dtype=np.float64))


@dataclass(frozen=True)
class TrimmedMean:
    """Weighted mean of each coordinate without its extreme values (Yin et al. 2018), a merge.

    If at most `byzantine` clients are malicious, the values that are left lie between honest ones.
    Their weights are scaled at each coordinate to sum to one.

    Args:
        byzantine: how many of the highest and of the lowest values are left out.
    """

    byzantine: int

    def __call__(
        self, current: ModelState, updates: Iterable[ClientUpdate], weights: FloatArray
    ) -> ModelState:
        """Return the next global state."""
        pairs = zip(updates, weights.tolist(), strict=True)
        # Of equal values the ones of lower clients are taken as the lower.
        ordered = sorted(pairs, key=lambda pair: pair[0].client)
        if len(ordered) <= 2 * self.byzantine:
            raise ValueError(
                f"{len(ordered)} clients are too few to tolerate {self.byzantine} Byzantine ones"
            )
        shares = torch.tensor([weight for _, weight in ordered], dtype=torch.float64)
        return _merge_coordinates(
            [update.state for update, _ in ordered],
            lambda values: trimmed_mean(values, shares, self.byzantine),
        )


def trimmed_mean(values: Tensor, weights: Tensor, cut: int) -> Tensor:
    """Return the weighted mean of each column (K, n) → (n,) without `cut` values at either end.

    Where the weights of the values that are left are all zero, these values count equally.
    """
    ordered, places = values.sort(dim=0, stable=True)
    kept = slice(cut, len(values) - cut)
    ordered, shares = ordered[kept], weights[places[kept]]
    shares = torch.where(shares.sum(dim=0) > 0, shares, torch.ones_like(shares))
    mean = (ordered * (shares / shares.sum(dim=0))).sum(dim=0)
    # Rounded weights may carry the mean a little beyond the values it is made of.
    return mean.clamp(ordered[0], ordered[-1])


def _merge_coordinates(
    states: Sequence[ModelState], merge: Callable[[Tensor], Tensor]
) -> ModelState:
    """Apply `merge` to the clients' values of every coordinate.

    `merge` takes a block (clients, coordinates) to (coordinates,); integer entries take the largest
    value, as in a mean.
    """
    for number, state in enumerate(states[1:], start=2):
        name = find_mismatch(states[0], state)
        if name is not None:
            raise ValueError(f"state {number} differs from the first in {name!r}")
    return ModelState(
        _merge_part([state.params for state in states], merge),
        _merge_part([state.buffers for state in states], merge),
    )


def _merge_part(
    parts: Sequence[Mapping[str, Tensor]], merge: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    return {name: _merge_entry([part[name] for part in parts], merge) for name in parts[0]}


def _merge_entry(tensors: Sequence[Tensor], merge: Callable[[Tensor], Tensor]) -> Tensor:
    first = tensors[0]
    if not first.is_floating_point():
        return torch.stack(list(tensors)).amax(dim=0)
    # The empty block stands for an entry that has no coordinates at all.
    merged = [torch.empty(0, dtype=torch.float64), *map(merge, _blocks(tensors))]
    return torch.cat(merged).reshape(first.shape).to(first.dtype)


def _blocks(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the clients' values of one entry as float64, (clients, coordinates), block by block."""
    rows = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, len(rows[0]), WIDTH):
        yield torch.stack([row[start : start + WIDTH].double() for row in rows])


def _float_entries(states: Sequence[ModelState]) -> Iterator[list[Tensor]]:
    """Yield the clients' tensors of every entry that is a float: parameters, then buffers."""
    for parts in ([state.params for state in states], [state.buffers for state in states]):
        for name, first in parts[0].items():
            if first.is_floating_point():
                yield [part[name] for part in parts]
