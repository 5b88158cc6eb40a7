"""Frozen records that cross the borders between clients, server and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
from torch import Tensor

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Task(StrEnum):
    """What a label is: one class of many, or any set of classes."""

    MULTICLASS = "multiclass"
    MULTILABEL = "multilabel"


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """How many cases of each class a client holds; never leaves that client.

    `positive` and `negative` (A and B of the paper) have shape (C,); they sum to `samples` in every
    class unless some labels are unknown, which then count in neither.
    """

    positive: FloatArray
    negative: FloatArray
    samples: int


@dataclass(frozen=True)
class ModelState:
    """A model at rest on the CPU, what is trained kept apart from what is only tracked."""

    params: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]


@dataclass(frozen=True)
class ClientInfo:
    """All the server ever learns of a client's data.

    `dispersion` is the one number that CBR asks for; None under a weighting that needs none.
    """

    client: int
    samples: int
    dispersion: float | None = None


@dataclass(frozen=True)
class ClientUpdate:
    """What a client returns from its local training.

    `effective_steps` is the number of plain gradient steps that its optimizer steps amount to
    (FedNova's ‖a‖₁); `seconds` is the duration of the training.
    """

    client: int
    state: ModelState
    steps: int
    effective_steps: float
    train_loss: float
    seconds: float = 0.0


@dataclass(frozen=True)
class ClientReport:
    """What is left of an update once it is merged, and how much it counted.

    Under secure aggregation the server learns only who took part, and the rest is None.
    """

    client: int
    weight: float | None = None
    steps: int | None = None
    train_loss: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class ClientFailure:
    """A client that was chosen for a round and does not count in it, and why."""

    client: int
    reason: str


@dataclass(frozen=True)
class ClientState:
    """What a client keeps for its next round; it never goes to the server.

    `model` is its trained model (MOON), `momentum` the optimizer's by parameter (central training).
    """

    model: ModelState | None = None
    momentum: Mapping[str, Tensor] | None = None
