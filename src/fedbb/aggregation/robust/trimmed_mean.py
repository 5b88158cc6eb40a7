"""The weighed mean of each coordinate without its highest and lowest values (Yin et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbb.aggregation.robust.coordinatewise import join_coordinates
from fedbb.records import ClientUpdate, FloatArray, ModelState


@dataclass(frozen=True)
class TrimmedMean:
    """A merge that leaves out the `byzantine` highest and lowest values of every coordinate.

    What is left lies between honest values if at most `byzantine` clients are malicious. It is
    weighted by the clients' weights, scaled at each coordinate to sum to one.
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
            raise ValueError(f"{len(ordered)} clients cannot outvote {self.byzantine} liars")
        shares = torch.tensor([weight for _, weight in ordered], dtype=torch.float64)
        return join_coordinates(
            [update.state for update, _ in ordered],
            lambda values: trimmed_mean(values, shares, self.byzantine),
        )


def trimmed_mean(values: Tensor, weights: Tensor, cut: int) -> Tensor:
    """Return the weighed mean of each column (K, n) → (n,) without `cut` values at either end.

    Where those left weigh nothing they are taken alike.
    """
    ordered, places = values.sort(dim=0, stable=True)
    kept = slice(cut, len(values) - cut)
    ordered, shares = ordered[kept], weights[places[kept]]
    shares = torch.where(shares.sum(dim=0) > 0, shares, torch.ones_like(shares))
    mean = (ordered * (shares / shares.sum(dim=0))).sum(dim=0)
    # A sum of rounded shares may step over the edge of what it was made of.
    return mean.clamp(ordered[0], ordered[-1])
