"""Private runs as Flower records: signed messages with a model beside them, and scores to sum.

To score a model, a site adds, for each set of examples, its size, and for each metric its size if
the metric is defined, and size times metric. From the sums follow the means over sites that
`pooling` computes; the server sees no site's own scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from flwr.app import ConfigRecord, MetricRecord, RecordDict

from fedbb.errors import PrivacyError, ReplyError
from fedbb.evaluation.metrics import Scores
from fedbb.flower.app.engine import pool_scores
from fedbb.flower.app.serde import (
    BROADCAST,
    FACTS,
    PER_CLASS,
    SCORED,
    STATE,
    Outline,
    PackedRecord,
    pack_client_info,
    pack_record,
    unpack_record,
    unpack_state,
    unpack_tensors,
)
from fedbb.records import ClientInfo, FloatArray, IntArray, ModelState, Task, Tensors

MESSAGE = "letter"
"""The name of the record of a signed message."""

OVERALL = ("accuracy", "balanced_accuracy")
"""Metrics that are not means over classes."""

_ONE = 2**24
"""The integer that stands for 1 in sums of fractions."""


@dataclass(frozen=True)
class Attachment:
    """What a message that asks for work carries: a state, and the round of each client's state."""

    state: PackedRecord
    state_rounds: Mapping[int, int]
    broadcast: PackedRecord | None = None


@dataclass(frozen=True)
class SiteMessage:
    """A signed message as it arrives at a site; without a state it asks for no work.

    `state_rounds` holds the round of every client's state: it is part of the view of a sum, which
    all of its clients must share.
    """

    stage: str
    data: bytes
    state: ModelState | None
    state_rounds: Mapping[int, int]
    broadcast: Tensors = field(default_factory=dict)


def pack_message(stage: str, data: bytes, attachment: Attachment | None = None) -> RecordDict:
    """Return the content of a Flower message with a signed message to a client."""
    since = {} if attachment is None else attachment.state_rounds
    facts = ConfigRecord({"stage": stage, "clients": [*since], "since": [*since.values()]})
    content = RecordDict({MESSAGE: _wrap(data), FACTS: facts})
    if attachment is not None:
        content[STATE] = attachment.state
        if attachment.broadcast is not None:
            content[BROADCAST] = attachment.broadcast
    return content


def unpack_message(content: RecordDict) -> SiteMessage:
    """Return the signed message in a Flower message to a site."""
    facts = content.get(FACTS)
    if not isinstance(facts, ConfigRecord):
        raise ReplyError(f"{FACTS} is missing or of another kind")
    stage, clients, since = facts.get("stage"), facts.get("clients"), facts.get("since")
    if not isinstance(stage, str) or not isinstance(clients, list) or not isinstance(since, list):
        raise ReplyError("a message must contain its stage and the rounds of the clients' states")
    keys = [entry for entry in clients if type(entry) is int]
    values = [entry for entry in since if type(entry) is int]
    if not len(keys) == len(clients) == len(values) == len(since):
        raise ReplyError("the rounds of the clients' states must be one integer for each client")
    state = unpack_state(content) if STATE in content else None
    rounds = dict(zip(keys, values, strict=True))
    broadcast = unpack_tensors(content, BROADCAST)
    return SiteMessage(stage, read_message(content), state, rounds, broadcast)


def pack_answer(data: bytes) -> RecordDict:
    """Return the content of a site's answer: the signed message and nothing else."""
    return RecordDict({MESSAGE: _wrap(data)})


def read_message(content: RecordDict) -> bytes:
    """Return the bytes of a signed message, which are not verified yet."""
    array = unpack_record(content, MESSAGE).get(MESSAGE)
    if array is None or array.dtype != np.uint8 or array.ndim != 1:
        raise ReplyError(f"{MESSAGE} is not an array of bytes")
    return array.tobytes()


def pack_number(client: int, outline: Outline) -> RecordDict:
    """Return what a site of a private run says about itself: its number, and no figure."""
    content = pack_client_info(ClientInfo(client, 0), outline)
    content[FACTS] = MetricRecord({"client": client})
    return content


def scores_length(classes: int) -> int:
    """Return the length of a site's vector of scores."""
    return len(SCORED) * (1 + 2 * _width(classes))


def weigh_scores(scores: Mapping[str, Scores], classes: int) -> IntArray:
    """Return, at the site, its vector of scores."""
    parts = [_weigh(scores.get(name), _width(classes)) for name in SCORED]
    return np.concatenate(parts).astype(np.int64)


def read_scores(totals: IntArray, classes: int, task: Task) -> dict[str, Scores]:
    """Return, at the server, the pooled scores in a sum; refuse an implausible sum."""
    rows = totals.astype(np.float64).reshape(len(SCORED), -1)
    pooled = {name: _mean(row, classes) for name, row in zip(SCORED, rows, strict=True) if row[0]}
    if "test" not in pooled:
        raise PrivacyError("no site has test data, so that the model cannot be scored")
    return pool_scores([pooled], task)


def _wrap(data: bytes) -> PackedRecord:
    return pack_record({MESSAGE: np.frombuffer(data, np.uint8)})


def _width(classes: int) -> int:
    return len(OVERALL) + len(PER_CLASS) * classes


def _weigh(found: Scores | None, width: int) -> FloatArray:
    if found is None:
        return np.zeros(1 + 2 * width)
    vectors = [found.per_class[metric] for metric in PER_CLASS]
    figures = np.concatenate([[found.macro[metric] for metric in OVERALL], *vectors])
    defined = ~np.isnan(figures)
    weighed = np.rint(np.where(defined, figures, 0.0) * found.samples * _ONE)
    return np.concatenate([[found.samples], defined * float(found.samples), weighed])


def _mean(row: FloatArray, classes: int) -> Scores:
    samples, width = row[0], _width(classes)
    sizes, weighed = row[1 : 1 + width], row[1 + width :]
    # Each site rounds its addend once.
    if not (np.all(sizes <= samples) and np.all((weighed >= 0) & (weighed <= sizes * _ONE + _ONE))):
        raise PrivacyError("the sum of the sites' scores is not within 0 and 1")
    figures = np.full(width, np.nan)
    np.divide(weighed, sizes * _ONE, out=figures, where=sizes > 0)
    macro = dict(zip(OVERALL, figures.tolist(), strict=False))
    rest = figures[len(OVERALL) :].reshape(len(PER_CLASS), classes)
    return Scores(int(samples), macro, dict(zip(PER_CLASS, rest, strict=True)), defined={})
