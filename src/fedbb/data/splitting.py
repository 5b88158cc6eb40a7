"""A user's examples divided into training and test ones: as a column says, or by a share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedbb.data.dataset import Examples
from fedbb.data.holdout import hold_out
from fedbb.errors import DataError
from fedbb.records import IntArray
from fedbb.rng import stream


def split_by_share(
    examples: Examples, share: float, group: str | None, seed: int
) -> tuple[Examples, Examples]:
    """Return (train, test) by a seeded draw; no value of column `group` is on both sides."""
    return hold_out(examples, share, stream(seed, "test-share"), group)


def split_by_values(
    examples: Examples,
    values: Sequence[str],
    leave_out: Sequence[str],
    place: Callable[[int], str],
) -> tuple[Examples, Examples]:
    """Return (train, test) as `values` say; rows with a value of `leave_out` go to neither.

    `place` says where a row stands in the user's file.
    """
    sides = [value.strip().lower() for value in values]
    out = {value.strip().lower() for value in leave_out}
    for row, side in enumerate(sides):
        if side not in {"train", "test"} | out:
            raise DataError(
                f"{place(row)}: the split is {values[row]!r}; allowed are train and test, "
                "and what leave_out names"
            )
    return examples.take(_where(sides, "train")), examples.take(_where(sides, "test"))


def _where(sides: list[str], side: str) -> IntArray:
    return np.array([row for row, value in enumerate(sides) if value == side], dtype=np.int64)
