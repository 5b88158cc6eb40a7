"""Model states, client infos, requests, updates and scores as Flower records, and back.

Everything that arrives is untrusted: no pickle is read, no array is larger than its message, and
every failure is a ReplyError.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeVar

import numpy as np
import numpy.lib.format as npy
import numpy.typing as npt
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedbb._util.text import quote, shorten
from fedbb._version import __version__
from fedbb.errors import ReplyError
from fedbb.evaluation.metrics import Scores
from fedbb.records import ClientInfo, ClientUpdate, FloatArray, ModelState, Task
from fedbb.rounds.replies import MOST_SAMPLES, Reply
from fedbb.state import state_from_arrays, state_to_arrays
from fedbb.training.config import TrainJob

STATE, FACTS, OUTLINE, VECTORS = "state", "facts", "outline", "vectors"
PER_CLASS = ("recall", "f1", "auroc", "average_precision")
MACRO = ("accuracy", "balanced_accuracy", "f1", "auroc", "average_precision")
SCORED = ("test", "validation")
NUMPY = "numpy.ndarray"
NEVER = -1
"""Stands for "no round" where Flower's records need an integer."""

VERSIONS = f"fedbb {__version__}, torch {torch.__version__}"
"""The software on which the last bits of results depend."""

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Outline:
    """The form of a site's data that one network must fit: task, classes, channels; no counts.

    `data` is only a name, and `versions` names the software that the site computes with. `shape` is
    that of one input, by which some networks are built; it is empty in runs of older versions.
    `tokens` tells whether inputs are whole numbers such as token ids, which are not scaled.
    """

    data: str
    task: Task
    classes: tuple[str, ...]
    channels: int
    versions: str
    shape: tuple[int, ...] = ()
    tokens: bool = False


@dataclass(frozen=True)
class TrainRequest:
    """A job for a site: the attempt it belongs to, the run, and the round of the client's state."""

    job: TrainJob
    attempt: int
    run: str
    since: int | None


@dataclass(frozen=True)
class TrainResponse:
    """A reply, and what became of the client's state at the site.

    `kept` tells that the site stored a state of this round, `lost` that it could not load the
    state that the request named.
    """

    reply: Reply
    kept: bool
    lost: bool


def pack_state(state: ModelState) -> ArrayRecord:
    """Return a state as a record."""
    return ArrayRecord({name: Array(array) for name, array in state_to_arrays(state).items()})


def unpack_state(content: RecordDict) -> ModelState:
    """Return the state in a message from the server."""
    return state_from_arrays(read_arrays(_record(content, STATE, ArrayRecord)))


def read_arrays(record: Mapping[str, Array]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an untrusted record."""
    return {name: _read(name, array) for name, array in record.items()}


def pack_client_info(info: ClientInfo, outline: Outline) -> RecordDict:
    """Return what a site reports before the first round."""
    facts: dict[str, Any] = {"client": info.client, "samples": info.samples}
    if info.dispersion is not None:
        facts["dispersion"] = info.dispersion
    form: dict[str, Any] = {
        "data": outline.data,
        "task": str(outline.task),
        "classes": list(outline.classes),
        "channels": outline.channels,
        "versions": outline.versions,
        "shape": list(outline.shape),
        "tokens": outline.tokens,
    }
    return RecordDict({FACTS: MetricRecord(facts), OUTLINE: ConfigRecord(form)})


def unpack_client_info(content: RecordDict) -> tuple[dict[str, object], Outline]:
    """Return the figures of a client info, unchecked, and the outline of the data."""
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
            channels=_integer(form["channels"]),
            versions=str(form["versions"]),
            shape=_shape(form.get("shape", [])),
            tokens=form.get("tokens") is True,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ReplyError(f"client info: the outline cannot be read: {quote(error)}") from error
    figures: dict[str, object] = {
        name: facts.get(name) for name in ("client", "samples", "dispersion")
    }
    return figures, outline


def pack_train_request(request: TrainRequest, state: ArrayRecord) -> RecordDict:
    """Return a job as a message's content; the state is packed once for all sites."""
    job = request.job
    facts: dict[str, Any] = {
        "client": job.client,
        "round": job.round,
        "seed": job.seed,
        "attempt": request.attempt,
        "since": NEVER if request.since is None else request.since,
        "run": request.run,
    }
    return RecordDict({STATE: state, FACTS: ConfigRecord(facts)})


def unpack_train_request(content: RecordDict) -> TrainRequest:
    """Return the job in a message."""
    facts = _record(content, FACTS, ConfigRecord)
    try:
        client, number, seed, attempt, since = (
            _integer(facts[name]) for name in ("client", "round", "seed", "attempt", "since")
        )
        run = str(facts["run"])
    except (KeyError, TypeError) as error:
        raise ReplyError(f"the job cannot be read: {quote(error)}") from error
    job = TrainJob(client, number, seed, unpack_state(content))
    return TrainRequest(job, attempt, run, None if since == NEVER else since)


def pack_update(
    update: ClientUpdate, request: TrainRequest, *, kept: bool, lost: bool
) -> RecordDict:
    """Return what a site sends after training."""
    facts: dict[str, Any] = {
        "client": update.client,
        "round": request.job.round,
        "attempt": request.attempt,
        "steps": update.steps,
        "train_loss": update.train_loss,
        "seconds": update.seconds,
        "kept": int(kept),
        "lost": int(lost),
    }
    return RecordDict({STATE: pack_state(update.state), FACTS: MetricRecord(facts)})


def unpack_update(content: RecordDict) -> TrainResponse:
    """Return what a site sent after training, not yet checked against the request."""
    facts = _record(content, FACTS, MetricRecord)
    arrays = read_arrays(_record(content, STATE, ArrayRecord))
    names = ("client", "round", "attempt", "steps", "train_loss", "seconds")
    client, number, attempt, steps, loss, seconds = (facts.get(name) for name in names)
    reply = Reply(client, number, attempt, arrays, steps, loss, seconds)
    return TrainResponse(reply, kept=facts.get("kept") == 1, lost=facts.get("lost") == 1)


def pack_scores(scores: Mapping[str, Scores]) -> RecordDict:
    """Return scores: for each set of examples its macro averages and one vector per-class."""
    content = RecordDict()
    for name, found in scores.items():
        figures: dict[str, Any] = {"samples": found.samples}
        figures |= {metric: float(found.macro[metric]) for metric in MACRO}
        vector = np.concatenate([found.per_class[metric] for metric in PER_CLASS])
        content[f"{FACTS}.{name}"] = MetricRecord(figures)
        content[f"{VECTORS}.{name}"] = ArrayRecord({VECTORS: Array(vector)})
    return content


def unpack_scores(
    content: RecordDict, classes: int, expected: Sequence[str] = SCORED
) -> dict[str, Scores]:
    """Return the scores in a message; each is in [0, 1], or NaN where it is undefined.

    The number of classes behind each mean is left empty; `pool_scores` fills it in. Of the names
    that are `expected`, the first must be there.
    """
    names = [name for name in expected if f"{FACTS}.{name}" in content]
    if expected[0] not in names:
        raise ReplyError(f"scores: there are none on {expected[0].replace('_', ' ')} data")
    return {name: _scores(content, name, classes) for name in names}


def _scores(content: RecordDict, name: str, classes: int) -> Scores:
    facts = _record(content, f"{FACTS}.{name}", MetricRecord)
    arrays = read_arrays(_record(content, f"{VECTORS}.{name}", ArrayRecord))
    vector, samples = arrays.get(VECTORS), facts.get("samples")
    wanted = (len(PER_CLASS) * classes,)
    if vector is None or vector.dtype != np.float64 or vector.shape != wanted:
        raise ReplyError(f"scores: {name} has no vector of {wanted[0]} numbers")
    if type(samples) is not int or not 0 < samples <= MOST_SAMPLES:
        raise ReplyError(f"scores: {name} has no valid number of samples")
    macro = {metric: facts.get(metric) for metric in MACRO}
    figures = np.array([_number(value) for value in macro.values()])
    for values in (vector, figures):
        _check_range(values, name)
    per_class = dict(zip(PER_CLASS, vector.reshape(len(PER_CLASS), classes), strict=True))
    averages = dict(zip(MACRO, figures.tolist(), strict=True))
    return Scores(samples, averages, per_class, defined={})


def _check_range(values: FloatArray, name: str) -> None:
    undefined = np.isnan(values)
    # A mean of ones may round to a little more than one.
    if not np.all(undefined | ((values >= 0) & (values <= 1 + 1e-9))):
        raise ReplyError(f"scores: {name} holds a value outside of [0, 1]")


def _record(content: RecordDict, key: str, kind: type[Kind]) -> Kind:
    record = content.get(key)
    if not isinstance(record, kind):
        raise ReplyError(f"{key} is missing or of another kind")
    return record


def _read(name: str, array: Array) -> npt.NDArray[Any]:
    """Return the array in these bytes, if their number is exactly what the header says."""
    if array.stype != NUMPY:
        raise ReplyError(f"{shorten(name, 60)} is no numpy array")
    stream = BytesIO(array.data)
    try:
        version = npy.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"format {version}")
        shape, fortran, dtype = npy.read_array_header_1_0(stream)
        start, count = stream.tell(), math.prod(shape)
        if dtype.hasobject or count * dtype.itemsize != len(array.data) - start:
            raise ValueError("its size differs from its header")
        flat = np.frombuffer(memoryview(array.data)[start:], dtype) if count else np.empty(0, dtype)
        return flat.reshape(shape, order="F" if fortran else "C").copy(order="C")
    except Exception as error:
        # numpy's header reader passes on any error of Python's tokenizer.
        raise ReplyError(f"{shorten(name, 60)} cannot be read: {shorten(error)}") from error


def _shape(value: object) -> tuple[int, ...]:
    lengths = tuple(_integer(length) for length in value) if isinstance(value, list) else None
    if lengths is None or len(lengths) > 8 or not all(0 < length < 2**31 for length in lengths):
        raise ValueError(f"{quote(value)} is no shape")
    return lengths


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{quote(value)} is no integer")
    return value


def _number(value: object) -> float:
    return float(value) if isinstance(value, float) else math.inf
