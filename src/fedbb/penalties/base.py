"""The second slot of a method: what else a training step is pulled towards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fedbb.models.base import NetworkModule, Outputs
from fedbb.records import ModelState


@dataclass(frozen=True)
class Anchors:
    """What a round begins with: the network to train, the global state, the client's last one.

    `previous` is the client's own model after the last round it took part in, None before that.
    """

    model: NetworkModule
    start: ModelState
    previous: ModelState | None


@dataclass(frozen=True)
class Step:
    """What a penalty may look at in one step; `loss` is the supervised loss, already a number."""

    images: Tensor
    outputs: Outputs
    loss: float


@dataclass(frozen=True)
class Needs:
    """What a penalty asks for beside plain training.

    Models held beside the trained one, forward passes of such models a step, a second run of the
    last stage at this share of its channels, MOON's projection head, the client's last model, and
    a bound on the norm of the whole gradient.
    """

    models: int = 0
    forwards: int = 0
    tail_width: float | None = None
    projection: bool = False
    client_state: bool = False
    clip: float | None = None


class Penalty(Protocol):
    """A frozen spec that is bound to a client's round and then returns a scalar for each step."""

    @property
    def needs(self) -> Needs:
        """What the penalty asks for."""
        ...

    def bind(self, anchors: Anchors) -> Callable[[Step], Tensor]:
        """Return the penalty for one client's round."""
        ...
