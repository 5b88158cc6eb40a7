"""Keep a seeded share of examples apart, as whole groups if wanted."""

from __future__ import annotations

import numpy as np

from fedbb._util.names import nearest
from fedbb.data.dataset import Examples
from fedbb.errors import DataError
from fedbb.records import IntArray


def hold_out(
    examples: Examples, share: float, rng: np.random.Generator, by: str | None = None
) -> tuple[Examples, Examples]:
    """Return (kept, held): about `share` of the examples is held, each side in its old order.

    With `by`, the name of a column, no value of it (no patient, say) is on both sides.
    """
    if not 0 < share < 1:
        raise DataError(f"the share to hold out is {share}; it must be above 0 and below 1")
    groups = np.arange(len(examples)) if by is None else _groups(examples, by)
    held = np.isin(groups, _choose(np.bincount(groups), share, rng, by or "example"))
    return examples.take(np.flatnonzero(~held)), examples.take(np.flatnonzero(held))


def _groups(examples: Examples, by: str) -> IntArray:
    """Return the number of each example's group."""
    if by not in examples.columns:
        raise DataError(f"no column {by!r} to hold out by" + nearest(by, examples.columns))
    return np.unique(examples.columns[by], return_inverse=True)[1].astype(np.int64)


def _choose(sizes: IntArray, share: float, rng: np.random.Generator, what: str) -> IntArray:
    """Return the groups to hold: in drawn order, each that brings the sum nearer to the share."""
    if len(sizes) < 2:
        raise DataError(
            f"cannot hold out a share: there is only {len(sizes)} {what}, and each side needs one"
        )
    target = share * sizes.sum()
    chosen: list[int] = []
    total = 0
    order = rng.permutation(len(sizes))
    for group in order:
        if abs(total + sizes[group] - target) < abs(total - target):
            chosen.append(group)
            total += sizes[group]
    # Every group may be too much for the share; the smallest is then the nearest to it.
    chosen = chosen[: len(sizes) - 1] or [order[np.argmin(sizes[order])]]
    return np.array(chosen, dtype=np.int64)
