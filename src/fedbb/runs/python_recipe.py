"""The record of a run that was made from Python: names of its parts, and fingerprints of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from torch import nn

from fedbb.data.dataset import Examples
from fedbb.methods import Method
from fedbb.models.build import ModelSource
from fedbb.partition.partition import Partition
from fedbb.partition.registry import KINDS, Rule
from fedbb.runs.federation import Federation
from fedbb.state import digest, snapshot

_ROWS = 4096
"""Rows that are hashed at once, so that data on disk is not read into memory as a whole."""


def fingerprints(federation: Federation, network: nn.Module) -> dict[str, str]:
    """Return the section `python` of a run's recipe.json."""
    data = hashlib.sha256()
    for name, examples in (("train", federation.dataset.train), *federation.scored.items()):
        data.update(name.encode())
        _add(data.update, examples)
    places = hashlib.sha256()
    for held in federation.partition.clients:
        places.update(len(held).to_bytes(8, "little") + held.astype("<i8").tobytes())
    return {
        "data": data.hexdigest(),
        "partition": places.hexdigest(),
        "model": _name(type(network)),
        "weights": digest(snapshot(network)),
    }


def describe_model(model: ModelSource) -> str:
    """Return what a recipe calls this network: its own name, or where its code is."""
    if isinstance(model, str):
        return model
    return _name(type(model) if isinstance(model, nn.Module) else model)


def describe_method(method: Method) -> dict[str, Any]:
    """Return the slots of a method as plain values, to tell it from others of its name."""
    slots = ("loss", "penalties", "weighting", "merge")
    return {slot: _plain(getattr(method, slot)) for slot in slots}


def describe_rule(partition: Partition, seed: int) -> Rule:
    """Return how a partition was made, as far as a recipe can say it.

    The seed is left out if it is that of the run: runs are compared that differ only in it.
    """
    made = partition.rule
    kind = str(made.get("kind", "own"))
    if kind not in KINDS:
        return Rule(kind, clients=len(partition.clients))
    known = {field.name for field in fields(Rule)}
    values = {name: value for name, value in made.items() if name in known}
    if values.get("seed") == seed:
        del values["seed"]
    return Rule(**values)


def _add(update: Callable[[bytes], object], examples: Examples) -> None:
    for array in (examples.inputs, examples.labels):
        update(f"{array.dtype.str}{array.shape}".encode())
        for start in range(0, len(array), _ROWS):
            update(np.ascontiguousarray(array[start : start + _ROWS]).tobytes())


def _plain(part: Any) -> Any:
    """Return a part as values that JSON can hold and that are the same in every process."""
    if part is None or isinstance(part, bool | int | float | str):
        return part
    if isinstance(part, tuple | list):
        return [_plain(inner) for inner in part]
    if isinstance(part, nn.Module):
        return {"kind": _name(type(part)), "text": repr(part), "weights": digest(snapshot(part))}
    if is_dataclass(part) and not isinstance(part, type):
        inner = {field.name: _plain(getattr(part, field.name)) for field in fields(part)}
        return {"kind": _name(type(part)), **inner}
    return _name(part if hasattr(part, "__qualname__") else type(part))


def _name(code: Any) -> str:
    name = getattr(code, "__qualname__", type(code).__qualname__)
    return f"{getattr(code, '__module__', type(code).__module__)}:{name}"
