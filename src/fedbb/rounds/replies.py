"""Replies of untrusted clients: each is checked against the request before it is aggregated.

A client may be broken, late or hostile. The server uses what a client says about itself only as
far as it can check it, and rejects everything else with the name of the field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedbb._util.text import quote, quote_some
from fedbb.aggregation.merging import validate_update
from fedbb.compression import Compression
from fedbb.errors import ReplyError
from fedbb.records import ClientInfo, ClientUpdate, IntArray, ModelFacts, ModelState
from fedbb.sampling import ALL_SAMPLES, Sampling
from fedbb.state import Arrays, select, state_from_arrays, state_to_arrays
from fedbb.statistics import Statistic, statistic_shapes
from fedbb.training.config import LocalConfig
from fedbb.training.local import NO_MODEL
from fedbb.training.loop import effective_steps

MOST_SAMPLES = 10**9
"""More samples than any site has; a client that declares more would own every weighted mean."""

EXACT_INTEGERS = 2**53
"""Larger integers are not exact in float64, the type in which weights are computed."""

FARTHEST = math.sqrt(float(np.finfo(np.float32).max))
"""Larger values, and longer changes, are always rejected: their squares overflow in float32."""


@dataclass(frozen=True, eq=False)
class Expected:
    """What a client was asked to do, which determines what a valid reply looks like.

    `max_norm` bounds the L2 norm of the client's change of the model, as `defense.max_norm` does.
    `statistics` are those that are due, and `facts` what their shapes follow from. A client that
    was asked to `measure` sends statistics and no model. Under a `compression` the model is a
    message of its form, in which positions may follow from the `seed` of the run. What is `kept` by
    clients, by the names of entries, must come back as it was sent.
    """

    state: ModelState
    info: ClientInfo
    config: LocalConfig
    round: int
    attempt: int = 1
    max_norm: float | None = None
    sampling: Sampling = ALL_SAMPLES
    statistics: tuple[Statistic, ...] = ()
    facts: ModelFacts | None = None
    measure: bool = False
    compression: Compression | None = None
    seed: int = 0
    kept: frozenset[str] = frozenset()

    @property
    def where(self) -> str:
        """The client and round, with which every error message begins."""
        return f"client {self.info.client}, round {self.round}"


@dataclass(frozen=True, eq=False)
class Reply:
    """What a client sent, unchecked, except that `arrays` maps names to something."""

    client: object
    round: object
    attempt: object
    arrays: Mapping[str, object]
    steps: object
    train_loss: object
    seconds: object = 0.0
    statistics: Mapping[str, object] = field(default_factory=dict)


class Inbox:
    """The replies to one attempt at a round: the first reply of each client is the one used."""

    def __init__(self, expected: Mapping[int, Expected]) -> None:
        self.expected = expected
        self._replied: set[int] = set()

    def take(self, client: int, reply: Reply) -> ClientUpdate:
        """Return the update in a client's reply, or raise ReplyError."""
        expected = self.expected[client]
        if client in self._replied:
            raise ReplyError(f"{expected.where}: duplicate: it has already replied")
        self._replied.add(client)
        return check_reply(reply, expected)


def check_reply(reply: Reply, expected: Expected) -> ClientUpdate:
    """Return the update in a reply that matches its request.

    This is the only check of a reply: the round that aggregates it needs no further filter.

    Raises:
        ReplyError: names the client, the round and the field that is wrong.
    """
    where, info = expected.where, expected.info
    _check_sender(reply, expected)
    samples = 0 if expected.measure else expected.sampling.size(info.samples)
    steps = expected_steps(samples, expected.config)
    if not _is_integer(reply.steps) or reply.steps != steps:
        raise ReplyError(
            f"{where}: steps is {quote(reply.steps)}, not {steps} as {samples} samples make"
        )
    loss = _finite(reply.train_loss, f"{where}: train_loss")
    seconds = _finite(reply.seconds, f"{where}: seconds")
    if seconds < 0:
        raise ReplyError(f"{where}: seconds is {seconds}, below 0")
    model = NO_MODEL if expected.measure else expected.state
    arrays, sent = reply.arrays, None
    if expected.compression is not None and not expected.measure:
        arrays = _rebuild(reply.arrays, expected, expected.compression)
        sent = sum(a.nbytes for a in reply.arrays.values() if isinstance(a, np.ndarray))
    arrays = check_arrays(arrays, state_to_arrays(model), where)
    for name, array in arrays.items():
        if array.dtype.kind in "iu" and np.any(np.abs(array.astype(np.float64)) >= EXACT_INTEGERS):
            raise ReplyError(f"{where}: {name} counts to {EXACT_INTEGERS} and beyond")
    state = state_from_arrays(arrays)
    check_update(model, state, expected.max_norm, where)
    _check_kept(model, state, expected)
    found = check_statistics(reply.statistics, expected)
    effective = effective_steps(steps, expected.config)
    return ClientUpdate(info.client, state, steps, effective, loss, seconds, found, sent_bytes=sent)


def _check_kept(sent: ModelState, received: ModelState, expected: Expected) -> None:
    """Refuse a model whose entries that stay with clients were moved: others begin with them."""
    before, after = ({**state.params, **state.buffers} for state in (sent, received))
    for name in sorted(expected.kept & before.keys()):
        if not torch.equal(before[name], after[name]):
            raise ReplyError(f"{expected.where}: {name} stays with the client, and came changed")


def _rebuild(arrays: Mapping[str, object], expected: Expected, compression: Compression) -> Arrays:
    """Return the arrays of the model that a compressed reply stands for."""
    where, model = expected.where, expected.state
    try:
        plain = compression.expand(arrays, model)
    except ValueError as error:
        raise ReplyError(f"{where}: {error}") from error
    message = check_arrays(plain, compression.form(model), where)
    if (fault := compression.fault(message, model)) is not None:
        raise ReplyError(f"{where}: {fault}")
    return state_to_arrays(compression.rebuild(model, message, expected.seed, expected.round))


def check_statistics(arrays: Mapping[str, object], expected: Expected) -> dict[str, Tensor]:
    """Return the statistics in a reply: exactly those that are due, as declared and possible.

    Raises:
        ReplyError: names the client, the round and the statistic that is wrong.
    """
    if not expected.statistics:
        if arrays:
            raise ReplyError(f"{expected.where}: adds {quote_some(set(arrays))}")
        return {}
    assert expected.facts is not None
    shapes = statistic_shapes(expected.statistics, expected.state, expected.facts)
    # Expanded from one number: a tensor of the shape without its memory.
    zeros = {n: torch.zeros((), dtype=t.dtype).expand(t.shape) for n, t in shapes.items()}
    like = state_to_arrays(ModelState(zeros, {}))
    checked = check_arrays(arrays, like, f"{expected.where}: statistics")
    found = dict(state_from_arrays(checked).params)
    for statistic in expected.statistics:
        fault = statistic.fault(select(found, f"{statistic.name}."))
        if fault is not None:
            raise ReplyError(f"{expected.where}: statistic {statistic.name}: {fault}")
    return found


def check_arrays(arrays: Mapping[str, object], like: Arrays, where: str) -> Arrays:
    """Return arrays with exactly the names, types and shapes of others, all finite and in range.

    Nothing is broadcast or cast, as numpy and torch would do silently.

    Args:
        arrays: what was received.
        like: arrays with the expected names, types and shapes.
        where: begins the message of the ReplyError.
    """
    for kind, names in (("misses", like.keys() - arrays.keys()), ("adds", arrays.keys() - like)):
        if names:
            raise ReplyError(f"{where}: {kind} {quote_some(names)}")
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
        if array.dtype.kind in "fc" and float(np.abs(array).max(initial=0.0)) > FARTHEST:
            raise ReplyError(f"{where}: {name} holds values beyond {FARTHEST:.3g}, an overflow")
        checked[name] = array
    return checked


def check_update(
    current: ModelState, trained: ModelState, max_norm: float | None, where: str
) -> None:
    """Reject what a simulation would reject too: an invalid model, or a change beyond `max_norm`.

    Args:
        current: the model that was sent.
        trained: the model that came back, with the same names, types and shapes.
        max_norm: the largest L2 norm of the change; None allows any that float32 can square.
        where: begins the message of the ReplyError.
    """
    bound = FARTHEST if max_norm is None else min(max_norm, FARTHEST)
    fault = validate_update(current, trained, bound)
    if fault is not None:
        raise ReplyError(f"{where}: {fault}")


def check_client_info(
    client: object, samples: object, dispersion: object, *, measured: bool
) -> ClientInfo:
    """Return a client info whose figures are possible.

    A client without samples is valid; it never trains.

    Args:
        client: the client's number as it was received.
        samples: its number of samples as it was received.
        dispersion: its dispersion as it was received.
        measured: whether it must have a dispersion; otherwise it must have none.
    """
    if not _is_integer(client) or client < 0:
        raise ReplyError(f"client info: client is {quote(client)}, not a number from 0")
    where = f"info of client {client}"
    if not _is_integer(samples) or not 0 <= samples <= MOST_SAMPLES:
        raise ReplyError(
            f"{where}: samples is {quote(samples)}, not an integer from 0 to {MOST_SAMPLES}"
        )
    if not measured:
        if dispersion is not None:
            raise ReplyError(f"{where}: dispersion is {quote(dispersion)}, which was not asked for")
        return ClientInfo(client, samples)
    spread = _finite(dispersion, f"{where}: dispersion")
    if spread < 0:
        raise ReplyError(f"{where}: dispersion is {spread}, below 0")
    return ClientInfo(client, samples, spread)


def check_measured(
    arrays: Mapping[str, object], like: Mapping[str, IntArray], where: str
) -> dict[str, IntArray]:
    """Return what a client measured of its labels for the server steps, once, if it is possible.

    Args:
        arrays: what was received.
        like: integers of the expected names and shapes.
        where: begins the message of the ReplyError.
    """
    checked = check_arrays(arrays, like, f"{where}: measured counts")
    for name, array in checked.items():
        if np.any(array < 0) or np.any(array > MOST_SAMPLES):
            raise ReplyError(f"{where}: measured counts {name} are not from 0 to {MOST_SAMPLES}")
    return dict(checked)


def expected_steps(samples: int, config: LocalConfig) -> int:
    """Return how many optimizer steps a client takes in a round with this many samples.

    >>> expected_steps(70, LocalConfig(epochs=2, batch_size=32))
    6
    """
    full, rest = divmod(samples, config.batch_size)
    # drop_last drops a short last batch, except if it is the only one.
    short = rest > 0 and (not config.drop_last or full == 0)
    return config.epochs * math.ceil((full + short) / config.accumulate)


def _check_sender(reply: Reply, expected: Expected) -> None:
    where = expected.where
    for name in ("client", "round", "attempt"):
        if not _is_integer(getattr(reply, name)):
            raise ReplyError(f"{where}: {name} is {quote(getattr(reply, name))}, not an integer")
    if reply.client != expected.info.client:
        raise ReplyError(f"{where}: client is {quote(reply.client)}, the number of another")
    if (reply.round, reply.attempt) != (expected.round, expected.attempt):
        raise ReplyError(
            f"{where}: late: it replies to round {quote(reply.round)}, attempt "
            f"{quote(reply.attempt)}, not to attempt {expected.attempt} of this round"
        )


def _is_integer(value: object) -> TypeGuard[int]:
    """Tell an int from a bool and from numpy's integers."""
    return type(value) is int


def _finite(value: object, what: str) -> float:
    if not isinstance(value, float) or not math.isfinite(value):
        raise ReplyError(f"{what} is {quote(value)}, not a finite number")
    return float(value)
