"""The distillation of a method: how networks learn from outputs on public inputs.

A *table* holds the outputs of a network on all public inputs, (P, C). Clients send theirs as a
statistic; what the server makes of them is learned by the server's model or by the clients' own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from fedbb.records import Task, Tensors

DISTILLATION = "distillation."
"""Prefix of what a client keeps for distillation, among the tensors of its state."""

CONSENSUS = "consensus"
"""Name of the server step that keeps what clients are to learn, and of what it broadcasts."""

Taught = Literal["server", "clients"]
Outputs = Literal["logits", "probabilities"]
Distance = Literal["kl", "mae", "mse"]
Mode = Literal["eval", "train"]

NEGLIGIBLE = 1e-6
"""A step is skipped if its loss is below this. Adam takes whole steps whatever the size of a
gradient, so that rounding errors would move a network which has nothing to learn."""


@dataclass(frozen=True)
class Distillation:
    """How a network is trained towards a table on public inputs, by Adam made anew each time.

    Args:
        taught: whose model learns: that of the "server" after each merge, or those of the
            "clients" at the beginning of their round.
        outputs: what a table holds: "logits", or the "probabilities" that they give.
        distance: "kl", the divergence of the network's probabilities from those of the table;
            "mae" or "mse", the mean absolute or squared difference of what a table holds.
        epochs: passes over the public inputs.
        steps: steps in all, whatever the epochs; None for those of the epochs.
        batch_size: public inputs in a step.
        lr: learning rate of Adam.
        cosine: whether it falls to zero over the steps along a cosine.
        clip: the largest norm of a gradient; None for any.
        temperature: divides the logits of both sides.
        mode: "eval": normalization works by its running statistics and dropout is off, as where
            the table was computed; "train": as in training, where running statistics move too.

    Raises:
        ValueError: a value is out of range.
    """

    taught: Taught = "server"
    outputs: Outputs = "logits"
    distance: Distance = "kl"
    epochs: int = 1
    steps: int | None = None
    batch_size: int = 128
    lr: float = 1e-3
    cosine: bool = False
    clip: float | None = None
    temperature: float = 1.0
    mode: Mode = "eval"

    def __post_init__(self) -> None:
        choices = {"taught": Taught, "outputs": Outputs, "distance": Distance, "mode": Mode}
        for name, kind in choices.items():
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}")
        for name, least in (("epochs", 0), ("steps", 0), ("batch_size", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, not {value}")
        for name in ("lr", "temperature", "clip"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < math.inf:
                raise ValueError(f"{name} must be a finite number above 0, not {value}")

    @property
    def keeps(self) -> bool:
        """Whether a client keeps something for its next round."""
        return False

    def steps_over(self, public: int) -> int:
        """Return how many steps are taken over this number of public inputs."""
        per_epoch = public // self.batch_size
        if self.mode == "eval" or per_epoch == 0:  # in training a short last batch is left out
            per_epoch = math.ceil(public / self.batch_size)
        return self.epochs * per_epoch if self.steps is None else self.steps

    def lr_at(self, step: int, steps: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        return self.lr * (1 + math.cos(math.pi * step / steps)) / 2 if self.cosine else self.lr

    def target(self, broadcast: Tensors, kept: Tensors, client: int) -> Tensor | None:
        """Return the table that a client is to learn; None if there is none yet.

        Args:
            broadcast: what the server sent beside the model.
            kept: what the client keeps for distillation.
            client: its number.
        """
        if self.taught == "server" or not float(broadcast[f"{CONSENSUS}.number"]) > 0:
            return None
        return broadcast[f"{CONSENSUS}.table"]

    def keep(self, found: Tensors) -> Tensors:
        """Return what a client keeps, given the statistics of its trained model by full name."""
        return {}

    def table(self, logits: Tensor, task: Task) -> Tensor:
        """Return what a table holds of these logits (N, C)."""
        if self.outputs == "logits":
            return logits
        return probabilities(logits / self.temperature, task)

    def loss(self, logits: Tensor, target: Tensor, task: Task) -> Tensor:
        """Return the distance of a network's logits (N, C) from rows of a table, (N, C)."""
        if self.distance == "kl":
            wanted, found = target, logits / self.temperature
            if self.outputs == "logits":
                return divergence_from_logits(found, wanted / self.temperature, task)
            return divergence(found, wanted, task)
        own = self.table(logits, task)
        return F.l1_loss(own, target) if self.distance == "mae" else F.mse_loss(own, target)

    def negligible(self, target: Tensor) -> float:
        """Return the loss below which a step is skipped, given the rows of a table."""
        # An absolute difference of logits is as exact as their size allows.
        size = float(target.abs().mean()) if self.distance == "mae" else 1.0
        return NEGLIGIBLE * max(1.0, size)


def probabilities(logits: Tensor, task: Task) -> Tensor:
    """Return the probability of each class: softmax, or sigmoid for a multi-label task."""
    return logits.sigmoid() if task is Task.MULTILABEL else logits.softmax(dim=1)


def divergence(logits: Tensor, wanted: Tensor, task: Task) -> Tensor:
    """Return the mean Kullback–Leibler divergence of a network's probabilities from given ones.

    Multi-class it is the mean over samples of Σ p·log(p/q); multi-label the mean over samples and
    classes of the divergence of two Bernoulli distributions.

    Args:
        logits: the network's, (N, C).
        wanted: probabilities (N, C); sums in fixed point may leave them a little outside of [0, 1].
        task: multi-class or multi-label.
    """
    p = wanted.clamp(0.0, 1.0)
    if task is Task.MULTILABEL:
        entropy = torch.xlogy(p, p) + torch.xlogy(1 - p, 1 - p)
        return (entropy - p * F.logsigmoid(logits) - (1 - p) * F.logsigmoid(-logits)).mean()
    return (torch.xlogy(p, p) - p * logits.log_softmax(dim=1)).sum(dim=1).mean()


def divergence_from_logits(logits: Tensor, wanted: Tensor, task: Task) -> Tensor:
    """Return the divergence from the probabilities of logits, exact also where these are tiny."""
    if task is Task.MULTILABEL:
        p = wanted.sigmoid()
        there = F.logsigmoid(wanted) - F.logsigmoid(logits)
        absent = F.logsigmoid(-wanted) - F.logsigmoid(-logits)
        return (p * there + (1 - p) * absent).mean()
    log_p = wanted.log_softmax(dim=1)
    return (log_p.exp() * (log_p - logits.log_softmax(dim=1))).sum(dim=1).mean()
