"""The second slot of a method: penalties that are added to the loss of a training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor, nn

from fedbb.models.base import Outputs
from fedbb.records import LabelCounts, ModelState, Tensors


@dataclass(frozen=True)
class Anchors:
    """What a penalty may refer to in a client's round.

    Args:
        model: the network that is trained.
        start: the global state that the round started from.
        previous: the client's own model after the last round it took part in, None before that.
        broadcast: what the server sent beside the model.
        kept: what this penalty kept from the last round that the client took part in; empty before.
        counts: the client's label counts.
    """

    model: nn.Module
    start: ModelState
    previous: ModelState | None
    broadcast: Tensors = field(default_factory=dict)
    kept: Tensors = field(default_factory=dict)
    counts: LabelCounts | None = None


@dataclass(frozen=True)
class Step:
    """What a penalty may look at in one step.

    Args:
        images: the batch, as the network got it.
        outputs: what the network returned.
        loss: the value of the supervised loss, without a graph.
        targets: the labels of the batch.
        teacher: a teacher's logits of the batch, if the data has them.
    """

    images: Tensor
    outputs: Outputs
    loss: float
    targets: Tensor | None = None
    teacher: Tensor | None = None


@dataclass(frozen=True)
class LocalResult:
    """A client's round once it has trained.

    Args:
        start: the global state that it started from.
        trained: the state that it ends in.
        effective_steps: the number of plain gradient steps that its steps amount to.
        lr: the learning rate of the round.
    """

    start: ModelState
    trained: ModelState
    effective_steps: float
    lr: float


def _keep_nothing(result: LocalResult) -> Tensors:
    return {}


PenaltyValue = Callable[[Step], Tensor]


@dataclass(frozen=True, eq=False)
class BoundPenalty:
    """A penalty in one client's round that owns parameters, or keeps tensors for the next one.

    Args:
        value: returns the penalty of a step.
        module: its own parameters, which the client's optimizer trains with the network's and which
            are never sent. Its forward pass must draw no random numbers.
        keep: returns, after the training, what the client keeps for this penalty.
    """

    value: PenaltyValue
    module: nn.Module | None = None
    keep: Callable[[LocalResult], Tensors] = _keep_nothing


@dataclass(frozen=True)
class Needs:
    """What a penalty needs in addition to plain training.

    Args:
        models: models held beside the trained one.
        forwards: forward passes of such models in a step.
        tail_width: the share of channels on which the last stage runs again, if it does.
        projection: whether the network needs MOON's projection head.
        embedding: whether the embedding is needed, with or without that head.
        linear_classifier: whether the classifier must be a linear layer with a bias.
        client_state: whether the client must keep its trained model for its next round.
        keeps: the name under which the client keeps tensors of the penalty for its next round;
            empty if it keeps none. A penalty that owns parameters must have one.
        clip: the largest norm of the whole gradient, if it is clipped.
        sgd: whether the steps must be those of SGD, with or without momentum.
        teacher: the file of a teacher's logits that the training examples must have; empty if it is
            needed and not named yet, None if none is needed.
    """

    models: int = 0
    forwards: int = 0
    tail_width: float | None = None
    projection: bool = False
    embedding: bool = False
    linear_classifier: bool = False
    client_state: bool = False
    keeps: str = ""
    clip: float | None = None
    sgd: bool = False
    teacher: str | None = None


class Penalty(Protocol):
    """A frozen spec that is bound to a client's round and then returns a scalar for each step."""

    @property
    def needs(self) -> Needs:
        """What the penalty needs."""
        ...

    def bind(self, anchors: Anchors) -> PenaltyValue | BoundPenalty:
        """Return the penalty for one client's round."""
        ...
