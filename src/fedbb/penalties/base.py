"""The second slot of a method: penalties that are added to the loss of a training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from fedbb.models.base import Outputs
from fedbb.records import ModelState


@dataclass(frozen=True)
class Anchors:
    """The models that a penalty may refer to in a client's round.

    Args:
        model: the network that is trained.
        start: the global state that the round started from.
        previous: the client's own model after the last round it took part in, None before that.
    """

    model: nn.Module
    start: ModelState
    previous: ModelState | None


@dataclass(frozen=True)
class Step:
    """What a penalty may look at in one step.

    Args:
        images: the batch, as the network got it.
        outputs: what the network returned.
        loss: the value of the supervised loss, without a graph.
    """

    images: Tensor
    outputs: Outputs
    loss: float


@dataclass(frozen=True)
class Needs:
    """What a penalty needs in addition to plain training.

    Args:
        models: models held beside the trained one.
        forwards: forward passes of such models in a step.
        tail_width: the share of channels on which the last stage runs again, if it does.
        projection: whether the network needs MOON's projection head.
        client_state: whether the client must keep its trained model for its next round.
        clip: the largest norm of the whole gradient, if it is clipped.
        sgd: whether the steps must be those of SGD, with or without momentum.
    """

    models: int = 0
    forwards: int = 0
    tail_width: float | None = None
    projection: bool = False
    client_state: bool = False
    clip: float | None = None
    sgd: bool = False


class Penalty(Protocol):
    """A frozen spec that is bound to a client's round and then returns a scalar for each step."""

    @property
    def needs(self) -> Needs:
        """What the penalty needs."""
        ...

    def bind(self, anchors: Anchors) -> Callable[[Step], Tensor]:
        """Return the penalty for one client's round."""
        ...
