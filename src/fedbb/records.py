"""Frozen records that pass between clients, server and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MOST_CLASSES = 100_000
"""More are taken for a mistake, such as a column of names read as labels."""

Tensors = Mapping[str, Tensor]
"""Tensors by name, on the CPU."""

OptimizerState = Mapping[str, Mapping[str, Tensor]]
"""What an optimizer remembers, by torch's name of the quantity and then by parameter."""


class Task(StrEnum):
    """What a label is: one class of many, or any set of classes."""

    MULTICLASS = "multiclass"
    MULTILABEL = "multilabel"


class Visibility(IntEnum):
    """What the server must see of the clients for a part of a method to work.

    Each value includes the ones before it. Secure aggregation grants `SUMS` only.
    """

    SUMS = 0
    """Sums over clients."""
    FIGURES = 1
    """What a single client declares or computes: its size, its loss."""
    UPDATES = 2
    """The trained model of a single client."""


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """How many cases of each class a client holds; it never leaves that client.

    Args:
        positive: the number of positive cases of each class, (C,); A of the paper.
        negative: the number of negative cases of each class, (C,); B of the paper. The two sum to
            `samples` in every class, unless some labels are unknown, which count in neither.
        samples: the number of samples.
    """

    positive: FloatArray
    negative: FloatArray
    samples: int


@dataclass(frozen=True)
class ModelState:
    """The tensors of a model, on the CPU.

    Args:
        params: what is trained, by the names of `state_dict`.
        buffers: what is only tracked, such as running statistics, by the same kind of names.
    """

    params: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]


@dataclass(frozen=True)
class ModelFacts:
    """What every party knows about the task and the network of a run.

    Args:
        task: what a label is.
        classes: the number of classes.
        classifier: the name of the network's classifier, whose input is the embedding; None if it
            has none that could be found.
        public: the number of public inputs.
        norms: the names of its normalization layers that keep running statistics, in its order;
            known to the server.
    """

    task: Task
    classes: int
    classifier: str | None
    public: int = field(default=0, kw_only=True)
    norms: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True)
class RunFacts(ModelFacts):
    """What the server knows about a run besides.

    Args:
        clients: the number of clients to choose from.
        seed: the seed of all random streams.
    """

    clients: int
    seed: int


@dataclass(frozen=True)
class ClientInfo:
    """All that the server learns about a client's data.

    Args:
        client: the number of the client.
        samples: the number of its samples.
        dispersion: R of its label counts, which CBR needs; None under other weightings.
    """

    client: int
    samples: int
    dispersion: float | None = None


@dataclass(frozen=True)
class ClientUpdate:
    """What a client sends to the server after its local training.

    Args:
        client: the number of the client.
        state: its trained model.
        steps: the number of its optimizer steps.
        effective_steps: the number of plain gradient steps that these amount to (FedNova's ‖a‖₁).
        train_loss: the mean of the training objective over its steps.
        seconds: the duration of the training.
        statistics: what the method's statistics computed, by name.
        message: the form in which the model is sent if the method compresses, by name; empty if it
            is sent as it is.
        sent_bytes: the size of that message, where the message itself is not at hand.
    """

    client: int
    state: ModelState
    steps: int
    effective_steps: float
    train_loss: float
    seconds: float = 0.0
    statistics: Tensors = field(default_factory=dict)
    message: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    sent_bytes: int | None = None

    @property
    def message_bytes(self) -> int | None:
        """The bytes that were sent of a model in compressed form; None if it was sent as it is."""
        if self.sent_bytes is not None or not self.message:
            return self.sent_bytes
        return sum(array.nbytes for array in self.message.values())


@dataclass(frozen=True)
class ClientReport:
    """What a record keeps of an update that was merged, without the model.

    Under secure aggregation the server learns only who took part, and the rest is None.

    Args:
        client: the number of the client.
        weight: its weight in the merge.
        steps: the number of its optimizer steps.
        train_loss: the mean of the training objective over its steps.
        seconds: the duration of the training.
        sent_bytes: what it sent of its model, if the method compresses.
    """

    client: int
    weight: float | None = None
    steps: int | None = None
    train_loss: float | None = None
    seconds: float = 0.0
    sent_bytes: int | None = None


@dataclass(frozen=True)
class ClientFailure:
    """A client that was chosen for a round and does not count in it, and the reason."""

    client: int
    reason: str


@dataclass(frozen=True)
class ClientState:
    """What a client keeps for its next round; it never leaves the client.

    Args:
        model: its trained model, if the method needs it (MOON).
        optimizer: the state of its optimizer, if it is kept (central training): "momentum" under
            SGD; "exp_avg", "exp_avg_sq" and "step" under Adam; each by parameter.
        tensors: what the method's penalties keep, each under its own name (SCAFFOLD, FedDyn).
    """

    model: ModelState | None = None
    optimizer: OptimizerState = field(default_factory=dict)
    tensors: Tensors = field(default_factory=dict)
