"""The second slot of a method: what else a training step is pulled towards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

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


class Penalty(Protocol):
    """A frozen spec that is bound to a client's round and then returns a scalar for each step."""

    projection: ClassVar[bool]
    """Whether the network needs MOON's projection head."""

    remembers: ClassVar[bool]
    """Whether a client must keep its trained model for its next round."""

    @property
    def clip(self) -> float | None:
        """The largest norm of the whole gradient, None for no bound."""
        ...

    def bind(self, anchors: Anchors) -> Callable[[Step], Tensor]:
        """Return the penalty for one client's round."""
        ...
