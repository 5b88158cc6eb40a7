"""Training and test examples: by a column of the user's file, or a seeded share of groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from fedbb._util.names import nearest
from fedbb.errors import DataError
from fedbb.records import IntArray
from fedbb.rng import stream


class Splittable(Protocol):
    """Examples with columns of text, decoded (`Examples`) or still by file name."""

    @property
    def columns(self) -> Mapping[str, npt.NDArray[np.str_]]:
        """Further facts of each example, such as its patient."""
        ...

    def __len__(self) -> int:
        """Return the number of examples."""
        ...

    def take(self, indices: IntArray) -> Self:
        """Return the examples at these places, in this order."""
        ...


Rows = TypeVar("Rows", bound=Splittable)

VALIDATION = ("val", "valid", "validation")
"""What users call the part of a data set that is neither trained on nor tested on."""


def hold_out(
    examples: Rows, share: float, rng: np.random.Generator, by: str | None = None
) -> tuple[Rows, Rows]:
    """Return (kept, held): about `share` of the examples is held, each side in its old order.

    With `by`, the name of a column, no value of it (no patient, say) is on both sides.
    """
    if not 0 < share < 1:
        raise DataError(f"the share to hold out is {share}; it must be above 0 and below 1")
    groups = np.arange(len(examples)) if by is None else _groups(examples, by)
    held = np.isin(groups, _choose(np.bincount(groups), share, rng, by or "example"))
    return examples.take(np.flatnonzero(~held)), examples.take(np.flatnonzero(held))


def _groups(examples: Splittable, by: str) -> IntArray:
    """Return the number of each example's group."""
    if by not in examples.columns:
        known = nearest(by, examples.columns) if examples.columns else "; the data has no columns"
        raise DataError(f"no column {by!r} to hold out by{known}")
    return np.unique(examples.columns[by], return_inverse=True)[1].astype(np.int64)


def _choose(sizes: IntArray, share: float, rng: np.random.Generator, what: str) -> IntArray:
    """Return the groups to hold: in drawn order, each that makes the sum nearer to the share."""
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


def split_by_share(examples: Rows, share: float, group: str | None, seed: int) -> tuple[Rows, Rows]:
    """Return (train, test) by a seeded draw; no value of column `group` is on both sides."""
    return hold_out(examples, share, stream(seed, "test-share"), group)


def split_by_values(
    examples: Rows,
    values: Sequence[str],
    leave_out: Sequence[str],
    place: Callable[[int], str],
) -> tuple[Rows, Rows, Rows | None]:
    """Return (train, test, validation) as `values` say; validation is None if no row has it.

    Rows with a value of `leave_out` are in no part. `place` returns where a row is in the user's
    file, for messages.
    """
    out = {value.strip().lower() for value in leave_out}
    sides = [value.strip().lower() for value in values]
    sides = ["validation" if side in VALIDATION and side not in out else side for side in sides]
    for row, side in enumerate(sides):
        if side not in {"train", "test", "validation"} | out:
            raise DataError(
                f"{place(row)}: the split is {values[row]!r}; allowed: train, test and val, "
                "and what leave_out names"
            )
    held = _where(sides, "validation")
    validation = examples.take(held) if len(held) else None
    return examples.take(_where(sides, "train")), examples.take(_where(sides, "test")), validation


def _where(sides: list[str], side: str) -> IntArray:
    return np.array([row for row, value in enumerate(sides) if value == side], dtype=np.int64)


def refuse_shared_patients(train: Splittable, test: Splittable, name: str) -> None:
    """Raise DataError if a patient has images in both parts."""
    both = np.intersect1d(train.columns["patient"], test.columns["patient"])
    if len(both):
        raise DataError(
            f"{name} data: patient {both[0]} is in the training and in the test part "
            f"({len(both)} such patients); scores would be too good"
        )
