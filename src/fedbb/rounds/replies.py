"""Answers of clients nobody vouches for: each is checked against what was asked before it counts.

A client may be broken, late or hostile. What it says about itself is believed only as far as the
server can check it, and everything else is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from fedbb.errors import ReplyError
from fedbb.records import ClientInfo, ClientUpdate, FloatArray, ModelState
from fedbb.state import PARAMS, Arrays, state_from_arrays, state_to_arrays
from fedbb.training.config import LocalConfig
from fedbb.training.sgd import effective_steps

MOST_SAMPLES = 2**53
"""Sizes from here on are no whole numbers in float64, in which weights are reckoned."""

FARTHEST = math.sqrt(float(np.finfo(np.float32).max))
"""A change this long is refused always: its square overflows in float32, as training would."""


@dataclass(frozen=True, eq=False)
class Expected:
    """What a client was asked, from which follows what its answer must look like.

    `max_norm` bounds how far its parameters may have moved, all taken as one vector.
    """

    state: ModelState
    info: ClientInfo
    plan: LocalConfig
    round: int
    attempt: int = 1
    max_norm: float | None = None

    @property
    def where(self) -> str:
        """Whose answer this is about, as every refusal begins."""
        return f"client {self.info.client}, round {self.round}"


@dataclass(frozen=True, eq=False)
class Reply:
    """What a client sent, as it came; only that `arrays` has names is taken for granted."""

    client: object
    round: object
    attempt: object
    arrays: Mapping[str, object]
    steps: object
    train_loss: object
    seconds: object = 0.0


class Inbox:
    """The answers of one attempt at a round: one from each client, and the first is the one."""

    def __init__(self, expected: Mapping[int, Expected]) -> None:
        self.expected = expected
        self._answered: set[int] = set()

    def take(self, client: int, reply: Reply) -> ClientUpdate:
        """Return the update in the answer that came from a client, or refuse it."""
        expected = self.expected[client]
        if client in self._answered:
            raise ReplyError(f"{expected.where}: duplicate: it answered already")
        self._answered.add(client)
        return check_reply(reply, expected)


def check_reply(reply: Reply, expected: Expected) -> ClientUpdate:
    """Return the update in an answer, or refuse it, naming client, round and field."""
    where, info = expected.where, expected.info
    _check_whose(reply, expected)
    steps = expected_steps(info.samples, expected.plan)
    if not _is_whole(reply.steps) or reply.steps != steps:
        raise ReplyError(
            f"{where}: steps is {_show(reply.steps)}, not {steps} as {info.samples} samples make"
        )
    loss = _finite(reply.train_loss, f"{where}: train_loss")
    seconds = _finite(reply.seconds, f"{where}: seconds")
    if seconds < 0:
        raise ReplyError(f"{where}: seconds is {seconds}, below 0")
    like = state_to_arrays(expected.state)
    arrays = check_arrays(reply.arrays, like, where)
    _check_distance(arrays, like, expected)
    state = state_from_arrays(arrays)
    return ClientUpdate(
        info.client, state, steps, effective_steps(steps, expected.plan), loss, seconds
    )


def check_arrays(arrays: Mapping[str, object], like: Arrays, where: str) -> Arrays:
    """Return arrays that have exactly the names, types and shapes of others and are finite.

    Refused is also what numpy or torch would broadcast or cast without a word. `where` begins the
    message of the ReplyError.
    """
    for kind, names in (("misses", like.keys() - arrays.keys()), ("adds", arrays.keys() - like)):
        if names:
            raise ReplyError(f"{where}: {kind} {_list(names)}")
    checked: dict[str, npt.NDArray[Any]] = {}
    for name, model in like.items():
        array = arrays[name]
        if type(array) is not np.ndarray:
            raise ReplyError(f"{where}: {name} is a {type(array).__name__}, not an array")
        if array.dtype != model.dtype:
            raise ReplyError(f"{where}: {name} has type {array.dtype.str}, not {model.dtype.str}")
        if array.shape != model.shape:
            raise ReplyError(f"{where}: {name} has shape {array.shape}, not {model.shape}")
        if not np.isfinite(array).all():
            raise ReplyError(f"{where}: {name} holds values that are not finite")
        checked[name] = array
    return checked


def check_client_info(
    client: object, samples: object, dispersion: object, *, measured: bool
) -> ClientInfo:
    """Return a card whose figures can be true; `measured` tells whether it must have a dispersion.

    A client without samples is an ordinary one that never trains.
    """
    if not _is_whole(client) or client < 0:
        raise ReplyError(f"card: client is {_show(client)}, not a number from 0")
    if not _is_whole(samples) or not 0 <= samples < MOST_SAMPLES:
        raise ReplyError(
            f"card of client {client}: samples is {_show(samples)}, "
            f"not a whole number from 0 to {MOST_SAMPLES - 1}"
        )
    if not measured:
        if dispersion is not None:
            raise ReplyError(
                f"card of client {client}: dispersion is {_show(dispersion)}; nobody asked for it"
            )
        return ClientInfo(client, samples)
    spread = _finite(dispersion, f"card of client {client}: dispersion")
    if spread < 0:
        raise ReplyError(f"card of client {client}: dispersion is {spread}, below 0")
    return ClientInfo(client, samples, spread)


def expected_steps(samples: int, plan: LocalConfig) -> int:
    """Return how many steps a client of this size takes in a round.

    >>> expected_steps(70, LocalConfig(epochs=2, batch_size=32))
    6
    """
    whole, rest = divmod(samples, plan.batch_size)
    # A short last batch is left out if the plan says so, but not if it is the only one.
    short = rest > 0 and (not plan.drop_last or whole == 0)
    return plan.epochs * (whole + short)


def _check_whose(reply: Reply, expected: Expected) -> None:
    where = expected.where
    for field in ("client", "round", "attempt"):
        if not _is_whole(getattr(reply, field)):
            raise ReplyError(f"{where}: {field} is {_show(getattr(reply, field))}, no whole number")
    if reply.client != expected.info.client:
        raise ReplyError(f"{where}: client is {_show(reply.client)}, another's number")
    if (reply.round, reply.attempt) != (expected.round, expected.attempt):
        raise ReplyError(
            f"{where}: late: it answers round {_show(reply.round)}, attempt {_show(reply.attempt)},"
            f" not attempt {expected.attempt} of this round"
        )


def _check_distance(arrays: Arrays, like: Arrays, expected: Expected) -> None:
    for name, array in arrays.items():
        if array.dtype.kind in "iu" and np.any(np.abs(array.astype(np.float64)) >= MOST_SAMPLES):
            raise ReplyError(f"{expected.where}: {name} counts to {MOST_SAMPLES} and beyond")
    moved = {
        name: length(arrays[name].astype(np.float64) - model.astype(np.float64))
        for name, model in like.items()
        if model.dtype.kind == "f"
    }
    for name, distance in moved.items():
        if distance > FARTHEST:
            raise ReplyError(f"{expected.where}: {name} moved by {distance:.3g}, which overflows")
    norm = math.hypot(*(distance for name, distance in moved.items() if name.startswith(PARAMS)))
    if expected.max_norm is not None and not norm <= expected.max_norm:
        raise ReplyError(
            f"{expected.where}: norm: its parameters moved by {norm:.3g}, "
            f"more than {expected.max_norm:g}"
        )


def length(change: FloatArray) -> float:
    """Return the Euclidean length of an array, without overflow on the way."""
    largest = float(np.abs(change).max(initial=0.0))
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    return largest * math.sqrt(float(np.square(change / largest).sum()))


def _is_whole(value: object) -> TypeGuard[int]:
    """Tell an integer from what Python would take for one."""
    return type(value) is int


def _finite(value: object, what: str) -> float:
    if not isinstance(value, float) or not math.isfinite(value):
        raise ReplyError(f"{what} is {_show(value)}, not a finite number")
    return float(value)


def _show(value: object) -> str:
    """Return a value as a message may quote it; a hostile one can be as long as it likes."""
    if type(value) is int and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"


def _list(names: set[str]) -> str:
    shown = ", ".join(_show(name) for name in sorted(names)[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
