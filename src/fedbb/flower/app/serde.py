"""Model states, client infos, requests, updates and scores as Flower records, and back.

The tensors of a state travel as one packed array. Everything that arrives is untrusted: no pickle
is read, no array is larger than its message, and every failure is a ReplyError.
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
from torch import Tensor

from fedbb._util.text import quote, shorten
from fedbb._version import __version__
from fedbb.errors import ReplyError
from fedbb.evaluation.metrics import Scores
from fedbb.records import ClientInfo, ClientUpdate, FloatArray, IntArray, ModelState, Task, Tensors
from fedbb.rounds.replies import MOST_SAMPLES, Reply
from fedbb.runs.model_info import INPUT_DTYPES
from fedbb.state import pack_arrays, state_from_arrays, state_to_arrays, unpack_arrays
from fedbb.training.config import TrainJob

STATE, FACTS, OUTLINE, VECTORS = "state", "facts", "outline", "vectors"
BROADCAST, STATISTICS, MEASURED = "broadcast", "statistics", "measured"
SHIFT, CASES = "shift", "cases"
PER_CLASS = ("recall", "f1", "auroc", "average_precision")
MACRO = ("accuracy", "balanced_accuracy", "f1", "auroc", "average_precision")
SCORED = ("test", "validation")
NUMPY, PACKED = "numpy.ndarray", "fedbb.packed"
"""Kinds of Flower's arrays: one array of numpy, or several in one block of bytes."""

LONGEST_SETTING = 4 * 2**20
"""Most bytes of a block that is sent as a setting."""

PackedRecord = ArrayRecord | ConfigRecord
NEVER = -1
"""Stands for "no round" where Flower's records need an integer."""

VERSIONS = f"fedbb {__version__}, torch {torch.__version__}"
"""The software on which the last bits of results depend."""

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Outline:
    """The form of a site's data that one network must fit; no counts.

    Args:
        data: Name of the data.
        task: Multi-class or multi-label.
        classes: Names of the classes.
        channels: Number of channels.
        versions: The software that the site computes with.
        shape: Shape of one input, by which some networks are built; empty in older runs.
        dtype: Type of the raw inputs, one of `INPUT_DTYPES`; empty in older runs.
        mean: Mean per channel by which the site normalizes inputs, empty if it does not; None if
            the site does not say.
        std: Standard deviation per channel, likewise.
        public: SHA-256 of the public inputs; empty without any.
    """

    data: str
    task: Task
    classes: tuple[str, ...]
    channels: int
    versions: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    public: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as a record of Flower and the run folder hold them."""
        form: dict[str, Any] = {
            "data": self.data,
            "task": str(self.task),
            "classes": list(self.classes),
            "channels": self.channels,
            "versions": self.versions,
            "shape": list(self.shape),
            "dtype": self.dtype,
        }
        if self.mean is not None and self.std is not None:
            form |= {"mean": list(self.mean), "std": list(self.std)}
        if self.public:
            form["public"] = self.public
        return form

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Outline:
        """Return the outline in untrusted values.

        Raises:
            KeyError, TypeError, ValueError: An entry is missing or makes no sense.
        """
        classes = form["classes"]
        if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
            raise TypeError("classes must be names")
        channels, shape = _integer(form["channels"]), _shape(form.get("shape", []))
        # Older runs say only whether inputs are token ids.
        dtype = str(form.get("dtype", "int64" if form.get("tokens") is True else ""))
        if dtype not in ("", *INPUT_DTYPES):
            raise ValueError(f"{quote(dtype)} is not a type of inputs")
        mean, std = (_statistics(form.get(name), channels) for name in ("mean", "std"))
        if (mean is None, mean == ()) != (std is None, std == ()) or min(std or (1.0,)) <= 0:
            raise ValueError("mean and std do not fit together")
        return cls(
            data=str(form["data"]),
            task=Task(str(form["task"])),
            classes=tuple(classes),
            channels=channels,
            versions=str(form["versions"]),
            shape=shape,
            dtype=dtype,
            mean=mean,
            std=std,
            public=str(form.get("public", "")),
        )


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

    `kept` says that the site stored a state of this round, `lost` that it could not load the
    state that the request named.
    """

    reply: Reply
    kept: bool
    lost: bool


def pack_state(state: ModelState) -> PackedRecord:
    """Return a state as a record."""
    return pack_record(state_to_arrays(state))


def unpack_state(content: RecordDict) -> ModelState:
    """Return the state in a message from the server."""
    return state_from_arrays(unpack_record(content, STATE))


def pack_tensors(tensors: Tensors) -> PackedRecord:
    """Return named tensors as a record, like the parameters of a state."""
    return pack_state(ModelState(tensors, {}))


def unpack_tensors(content: RecordDict, key: str) -> dict[str, Tensor]:
    """Return the named tensors of a record in a message from the server, none without it."""
    if key not in content:
        return {}
    return dict(state_from_arrays(unpack_record(content, key)).params)


def pack_record(arrays: Mapping[str, npt.NDArray[Any]]) -> PackedRecord:
    """Return a record that holds named arrays packed into one.

    Flower sends a setting with its record, and an array as two or more objects of its own, which
    it can cut into pieces.
    """
    block = pack_arrays(arrays)
    if len(block) <= LONGEST_SETTING:
        return ConfigRecord({PACKED: block})
    return ArrayRecord({PACKED: Array("uint8", (len(block),), PACKED, block)})


def unpack_record(content: RecordDict, key: str) -> dict[str, npt.NDArray[Any]]:
    """Return the packed arrays of a record in an untrusted message."""
    record = content.get(key)
    if not isinstance(record, (ArrayRecord, ConfigRecord)):
        raise ReplyError(f"{key} is missing or of another kind")
    block = record.get(PACKED)
    if isinstance(block, Array) and block.stype == PACKED:
        block = block.data
    if not isinstance(block, bytes) or len(record) != 1:
        raise ReplyError(
            f"{key} is not packed into one array; server and sites need the same version of fedbb"
        )
    try:
        return unpack_arrays(block)
    except ValueError as error:
        raise ReplyError(f"{key} cannot be read: {shorten(error)}") from error


def read_arrays(record: Mapping[str, Array]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an untrusted record."""
    return {name: _read(name, array) for name, array in record.items()}


def pack_client_info(
    info: ClientInfo, outline: Outline, measured: Mapping[str, IntArray] | None = None
) -> RecordDict:
    """Return what a site reports before the first round.

    `measured` is what it measured of its labels for the server steps of the method.
    """
    facts: dict[str, Any] = {"client": info.client, "samples": info.samples}
    if info.dispersion is not None:
        facts["dispersion"] = info.dispersion
    form = ConfigRecord(outline.to_json())
    content = RecordDict({FACTS: MetricRecord(facts), OUTLINE: form})
    if measured:
        content[MEASURED] = pack_record(measured)
    return content


def unpack_client_info(content: RecordDict) -> tuple[dict[str, object], Outline]:
    """Return the figures of a client info, unchecked, and the outline of the data."""
    facts = _record(content, FACTS, MetricRecord)
    form = _record(content, OUTLINE, ConfigRecord)
    try:
        outline = Outline.from_json(form)
    except (KeyError, TypeError, ValueError) as error:
        raise ReplyError(f"client info: the outline cannot be read: {quote(error)}") from error
    figures: dict[str, object] = {
        name: facts.get(name) for name in ("client", "samples", "dispersion")
    }
    return figures, outline


def unpack_measured(content: RecordDict) -> dict[str, npt.NDArray[Any]]:
    """Return what a site measured for the server steps, unchecked; nothing if it sent none."""
    if MEASURED not in content:
        return {}
    return unpack_record(content, MEASURED)


def pack_train_request(
    request: TrainRequest, state: PackedRecord, broadcast: PackedRecord | None = None
) -> RecordDict:
    """Return a job as a message's content; state and broadcast are packed once for all sites."""
    job = request.job
    facts: dict[str, Any] = {
        "client": job.client,
        "round": job.round,
        "seed": job.seed,
        "attempt": request.attempt,
        "since": NEVER if request.since is None else request.since,
        "run": request.run,
    }
    if job.measure:
        facts["measure"] = 1
    content = RecordDict({STATE: state, FACTS: ConfigRecord(facts)})
    if broadcast is not None:
        content[BROADCAST] = broadcast
    return content


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
    broadcast, measure = unpack_tensors(content, BROADCAST), facts.get("measure") == 1
    job = TrainJob(client, number, seed, unpack_state(content), broadcast, measure)
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
    model = pack_record(update.message or state_to_arrays(update.state))
    content = RecordDict({STATE: model, FACTS: MetricRecord(facts)})
    if update.statistics:
        content[STATISTICS] = pack_tensors(update.statistics)
    return content


def unpack_update(content: RecordDict) -> TrainResponse:
    """Return what a site sent after training, not yet checked against the request."""
    facts = _record(content, FACTS, MetricRecord)
    arrays = unpack_record(content, STATE)
    names = ("client", "round", "attempt", "steps", "train_loss", "seconds")
    client, number, attempt, steps, loss, seconds = (facts.get(name) for name in names)
    found: Mapping[str, object] = {}
    if STATISTICS in content:
        found = unpack_record(content, STATISTICS)
    reply = Reply(client, number, attempt, arrays, steps, loss, seconds, found)
    return TrainResponse(reply, kept=facts.get("kept") == 1, lost=facts.get("lost") == 1)


@dataclass(frozen=True)
class OwnPart:
    """What a site is to score its own model with: the run, and the round of its client's state."""

    run: str
    since: int | None


def pack_scoring(
    state: PackedRecord, shift: FloatArray | None = None, own: OwnPart | None = None
) -> RecordDict:
    """Return a model to score.

    `shift` is added to its logits, (C,), where it decides otherwise. With `own` the site puts what
    its client keeps into the model.
    """
    content = RecordDict({STATE: state})
    if shift is not None:
        content[SHIFT] = ArrayRecord({SHIFT: Array(shift)})
    if own is not None:
        since = NEVER if own.since is None else own.since
        content[FACTS] = ConfigRecord({"run": own.run, "since": since})
    return content


def unpack_own_part(content: RecordDict) -> OwnPart | None:
    """Return with what a site is to score its own model; None if the model is scored as it is."""
    if FACTS not in content:
        return None
    facts = _record(content, FACTS, ConfigRecord)
    try:
        run, since = str(facts["run"]), _integer(facts["since"])
    except (KeyError, TypeError) as error:
        raise ReplyError(f"the request for scores cannot be read: {quote(error)}") from error
    return OwnPart(run, None if since == NEVER else since)


def unpack_shift(content: RecordDict, classes: int) -> FloatArray | None:
    """Return what a message from the server adds to the logits, None if it adds nothing."""
    if SHIFT not in content:
        return None
    shift = read_arrays(_record(content, SHIFT, ArrayRecord)).get(SHIFT)
    if shift is None or shift.dtype != np.float64 or shift.shape != (classes,):
        raise ReplyError(f"there are no {classes} numbers to add to the logits")
    return shift


def pack_cases(counts: IntArray) -> RecordDict:
    """Return the validation cases of a site, counted by their log-odds."""
    return RecordDict({CASES: ArrayRecord({CASES: Array(counts)})})


def unpack_cases(content: RecordDict, shape: tuple[int, ...]) -> IntArray:
    """Return the counts in a message; refuse an empty one and counts whose sum could overflow."""
    counts = read_arrays(_record(content, CASES, ArrayRecord)).get(CASES)
    if counts is None or counts.dtype != np.int64 or counts.shape != shape:
        raise ReplyError(f"cases: there are no whole numbers of shape {shape}")
    if counts.min() < 0 or not 0 < counts.max() <= MOST_SAMPLES:
        raise ReplyError("cases: a count is not valid")
    return counts


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
        raise ReplyError(f"{shorten(name, 60)} is not a numpy array")
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
        raise ValueError(f"{quote(value)} is not a shape")
    return lengths


def _statistics(value: object, channels: int) -> tuple[float, ...] | None:
    """Return one finite number for each channel, or none at all."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(number) is float for number in value):
        raise TypeError(f"{quote(value)} is not a list of numbers")
    if len(value) not in (0, channels) or not all(math.isfinite(number) for number in value):
        raise ValueError(f"{quote(value)} is not one number for each channel")
    return tuple(value)


def _integer(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{quote(value)} is not an integer")
    return value


def _number(value: object) -> float:
    return float(value) if isinstance(value, float) else math.inf
