"""Public inputs: examples without labels that every client and the server have."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.data.dataset import Dataset
from fedbb.data.mapped import Inputs, chunk_rows, take_rows
from fedbb.errors import DataError
from fedbb.rng import stream

FEWEST = 2
"""The fewest public inputs: batch normalization cannot train on one alone."""

_NUMBERS = 2**24
"""Numbers that are read at once."""


def with_public(
    dataset: Dataset,
    public: Dataset | npt.NDArray[Any],
    number: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Return a data set with public inputs, which are normalized as its own are.

    Args:
        dataset: the data that clients train on.
        public: another data set, of which the training inputs are taken and the labels never read;
            or inputs (N, …).
        number: how many are drawn at random; all if None.
        seed: of the draw.

    Raises:
        DataError: the inputs have another type or shape than those of the data set, hold numbers
            that are not finite, or are too few.
    """
    name = public.name if isinstance(public, Dataset) else "array"
    inputs: Inputs = public.train.inputs if isinstance(public, Dataset) else np.asarray(public)
    _check(dataset, inputs, name)
    if number is not None:
        if number > len(inputs):
            raise DataError(f"public data: {number} inputs are asked for, {name} has {len(inputs)}")
        rows = stream(seed, "public").choice(len(inputs), number, replace=False)
        inputs = take_rows(inputs, np.sort(rows))
    return _attach(dataset, inputs, f"of {name}")


def take_public(dataset: Dataset, number: int, seed: int = 0) -> Dataset:
    """Return a data set some of whose training examples became public inputs.

    Args:
        dataset: the data.
        number: how many are drawn at random; they are no longer trained on.
        seed: of the draw.

    Raises:
        DataError: there are not more examples than that.
    """
    if number >= len(dataset.train):
        raise DataError(
            f"public data: {number} inputs are asked for, and {dataset.name} has "
            f"{len(dataset.train)} examples to train on, of which some must stay"
        )
    order = stream(seed, "public").permutation(len(dataset.train))
    taken, kept = np.sort(order[:number]), np.sort(order[number:])
    rest = replace(dataset, train=dataset.train.take(kept))
    return _attach(rest, take_rows(dataset.train.inputs, taken), "taken from the training data")


def public_digest(public: Inputs | None) -> str:
    """Return the SHA-256 of type, shape and values of public inputs; empty without any."""
    if public is None:
        return ""
    total = hashlib.sha256(f"{public.dtype.str}{public.shape}".encode())
    step = chunk_rows(public, _NUMBERS, len(public))
    for start in range(0, len(public), step):
        total.update(np.ascontiguousarray(public[start : start + step]).tobytes())
    return total.hexdigest()


def _attach(dataset: Dataset, inputs: Inputs, origin: str) -> Dataset:
    if len(inputs) < FEWEST:
        raise DataError(f"public data has {len(inputs)} inputs; at least {FEWEST} are needed")
    note = f"{len(inputs)} public inputs {origin}"
    return replace(dataset, public=inputs, notes=(*dataset.notes, note))


def _check(dataset: Dataset, inputs: Inputs, name: str) -> None:
    own = dataset.train.inputs
    if inputs.dtype != own.dtype or inputs.shape[1:] != own.shape[1:]:
        raise DataError(
            f"public data: {name} has {inputs.dtype} inputs of shape {inputs.shape[1:]}, and those "
            f"of {dataset.name} are {own.dtype} of shape {own.shape[1:]}; one network takes both"
        )
    if inputs.dtype.kind != "f":
        return
    step = chunk_rows(inputs, _NUMBERS, len(inputs))
    for start in range(0, len(inputs), step):
        if not np.isfinite(inputs[start : start + step]).all():
            raise DataError(f"public data: {name} holds values that are not finite")
