"""Model states, cards, jobs, updates and scores as Flower's records, and back.

What comes from a site is read as bytes from a stranger: no pickle, no array larger than its
message, and every failure is a ReplyError.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeVar

import numpy as np
import numpy.lib.format as npy
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedbb.errors import ReplyError
from fedbb.evaluation.metrics import Scores
from fedbb.records import ClientInfo, ClientUpdate, FloatArray, ModelState, Task
from fedbb.rounds.replies import Reply
from fedbb.state import state_from_arrays, state_to_arrays
from fedbb.training.config import TrainJob

STATE, FACTS, OUTLINE, VECTORS = "state", "facts", "outline", "vectors"
PER_CLASS = ("recall", "f1", "auroc", "average_precision")
MACRO = ("accuracy", "balanced_accuracy", "f1", "auroc", "average_precision")
SCORED = ("test", "validation")
NUMPY = "numpy.ndarray"
NEVER = -1
"""Stands for a round that there was none of."""

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Outline:
    """What of a site's data one network must fit: task, classes and channels, but no figure.

    `data` is only a name, and `versions` tells what the site computes with.
    """

    data: str
    task: Task
    classes: tuple[str, ...]
    channels: int
    versions: str


@dataclass(frozen=True)
class Order:
    """A job as it travels: the attempt it belongs to, the run, and the round of the memory."""

    job: TrainJob
    attempt: int
    run: str
    since: int | None


@dataclass(frozen=True)
class Answered:
    """A reply, and what the site says about its memory: kept of this round, lost of an earlier."""

    reply: Reply
    kept: bool
    forgot: bool


def pack_state(state: ModelState) -> ArrayRecord:
    """Return a state as a record."""
    return ArrayRecord({name: Array(array) for name, array in state_to_arrays(state).items()})


def unpack_state(content: RecordDict) -> ModelState:
    """Return the state that a message from the server carries."""
    return state_from_arrays(read_arrays(_record(content, STATE, ArrayRecord)))


def read_arrays(record: Mapping[str, Array]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays in a record of which nothing is trusted."""
    return {name: _read(name, array) for name, array in record.items()}


def pack_card(info: ClientInfo, outline: Outline) -> RecordDict:
    """Return what a site tells of itself before the first round."""
    facts: dict[str, Any] = {"client": info.client, "samples": info.samples}
    if info.dispersion is not None:
        facts["dispersion"] = info.dispersion
    form: dict[str, Any] = {
        "data": outline.data,
        "task": str(outline.task),
        "classes": list(outline.classes),
        "channels": outline.channels,
        "versions": outline.versions,
    }
    return RecordDict({FACTS: MetricRecord(facts), OUTLINE: ConfigRecord(form)})


def unpack_card(content: RecordDict) -> tuple[dict[str, object], Outline]:
    """Return a card's figures as they came, and the outline."""
    facts = _record(content, FACTS, MetricRecord)
    form = _record(content, OUTLINE, ConfigRecord)
    try:
        classes = form["classes"]
        if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
            raise TypeError("classes must be names")
        outline = Outline(
            data=str(form["data"]),
            task=Task(str(form["task"])),
            classes=tuple(str(name) for name in classes),
            channels=_whole(form["channels"]),
            versions=str(form["versions"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ReplyError(f"card: the outline cannot be read: {error!r}"[:200]) from error
    figures: dict[str, object] = {
        name: facts.get(name) for name in ("client", "samples", "dispersion")
    }
    return figures, outline


def pack_order(order: Order, state: ArrayRecord) -> RecordDict:
    """Return a job as a message's content; the state is packed once for all."""
    job = order.job
    facts: dict[str, Any] = {
        "client": job.client,
        "round": job.round,
        "seed": job.seed,
        "attempt": order.attempt,
        "since": NEVER if order.since is None else order.since,
        "run": order.run,
    }
    return RecordDict({STATE: state, FACTS: ConfigRecord(facts)})


def unpack_order(content: RecordDict) -> Order:
    """Return the job in a message."""
    facts = _record(content, FACTS, ConfigRecord)
    try:
        client, number, seed, attempt, since = (
            _whole(facts[name]) for name in ("client", "round", "seed", "attempt", "since")
        )
        run = str(facts["run"])
    except (KeyError, TypeError) as error:
        raise ReplyError(f"the job cannot be read: {error!r}"[:200]) from error
    job = TrainJob(client, number, seed, unpack_state(content))
    return Order(job, attempt, run, None if since == NEVER else since)


def pack_update(update: ClientUpdate, order: Order, *, kept: bool, forgot: bool) -> RecordDict:
    """Return what a site sends after training."""
    facts: dict[str, Any] = {
        "client": update.client,
        "round": order.job.round,
        "attempt": order.attempt,
        "steps": update.steps,
        "train_loss": update.train_loss,
        "seconds": update.seconds,
        "kept": int(kept),
        "forgot": int(forgot),
    }
    return RecordDict({STATE: pack_state(update.state), FACTS: MetricRecord(facts)})


def unpack_update(content: RecordDict) -> Answered:
    """Return what came back, still to be checked against what was asked."""
    facts = _record(content, FACTS, MetricRecord)
    arrays = read_arrays(_record(content, STATE, ArrayRecord))
    names = ("client", "round", "attempt", "steps", "train_loss", "seconds")
    client, number, attempt, steps, loss, seconds = (facts.get(name) for name in names)
    reply = Reply(client, number, attempt, arrays, steps, loss, seconds)
    return Answered(reply, kept=facts.get("kept") == 1, forgot=facts.get("forgot") == 1)


def pack_scores(scores: Mapping[str, Scores]) -> RecordDict:
    """Return scores, for each set of examples its macro figures and one vector of all classes'."""
    content = RecordDict()
    for name, found in scores.items():
        figures: dict[str, Any] = {"samples": found.samples}
        figures |= {metric: float(found.macro[metric]) for metric in MACRO}
        vector = np.concatenate([found.per_class[metric] for metric in PER_CLASS])
        content[f"{FACTS}.{name}"] = MetricRecord(figures)
        content[f"{VECTORS}.{name}"] = ArrayRecord({VECTORS: Array(vector)})
    return content


def unpack_scores(content: RecordDict, classes: int) -> dict[str, Scores]:
    """Return the scores in a message; each is a share, or NaN where it is not defined.

    Over how many classes a mean is, is left to whoever pools them.
    """
    names = [name for name in SCORED if f"{FACTS}.{name}" in content]
    if "test" not in names:
        raise ReplyError("scores: there are none on test data")
    return {name: _scores(content, name, classes) for name in names}


def _scores(content: RecordDict, name: str, classes: int) -> Scores:
    facts = _record(content, f"{FACTS}.{name}", MetricRecord)
    arrays = read_arrays(_record(content, f"{VECTORS}.{name}", ArrayRecord))
    vector, samples = arrays.get(VECTORS), facts.get("samples")
    wanted = (len(PER_CLASS) * classes,)
    if vector is None or vector.dtype != np.float64 or vector.shape != wanted:
        raise ReplyError(f"scores: {name} has no vector of {wanted[0]} numbers")
    if type(samples) is not int or not 0 < samples < 2**53:
        raise ReplyError(f"scores: {name} tells of no number of samples")
    macro = {metric: facts.get(metric) for metric in MACRO}
    figures = np.array([_number(value) for value in macro.values()])
    for values in (vector, figures):
        _check_shares(values, name)
    per_class = dict(zip(PER_CLASS, vector.reshape(len(PER_CLASS), classes), strict=True))
    told = dict(zip(MACRO, figures.tolist(), strict=True))
    return Scores(samples, told, per_class, defined={})


def _check_shares(values: FloatArray, name: str) -> None:
    undefined = np.isnan(values)
    # Sums of shares may round to a little more than one.
    if not np.all(undefined | ((values >= 0) & (values <= 1 + 1e-9))):
        raise ReplyError(f"scores: {name} holds a figure that is no share of one")


def _record(content: RecordDict, key: str, kind: type[Kind]) -> Kind:
    record = content.get(key)
    if not isinstance(record, kind):
        raise ReplyError(f"{key} is missing or of another kind")
    return record


def _read(name: str, array: Array) -> npt.NDArray[Any]:
    """Return the array in these bytes, of which there must be exactly as many as it says."""
    if array.stype != NUMPY:
        raise ReplyError(f"{name[:60]} is no numpy array")
    stream = BytesIO(array.data)
    try:
        version = npy.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"format {version}")
        shape, fortran, dtype = npy.read_array_header_1_0(stream)
        start, count = stream.tell(), math.prod(shape)
        if dtype.hasobject or count * dtype.itemsize != len(array.data) - start:
            raise ValueError("its size is not what its header says")
        flat = np.frombuffer(memoryview(array.data)[start:], dtype) if count else np.empty(0, dtype)
        return flat.reshape(shape, order="F" if fortran else "C").copy(order="C")
    except Exception as error:
        # numpy's reader raises whatever its tokenizer does.
        raise ReplyError(f"{name[:60]} cannot be read: {error}"[:200]) from error


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number"[:100])
    return value


def _number(value: object) -> float:
    return float(value) if isinstance(value, float) else math.inf
