"""Methods that learn from outputs on public inputs: FedDF and FedMD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.distillation import CONSENSUS, Distance, Distillation, Mode
from fedbb.methods.record import Method
from fedbb.models.base import run_network
from fedbb.personal import KeptEntries
from fedbb.records import IntArray, ModelFacts, ModelState, RunFacts, Tensors
from fedbb.statistics import ClientView, Moment, Statistic, form


@dataclass(frozen=True)
class PublicTable(Statistic):
    """The outputs of a client's trained model on the public inputs, (P, C).

    Args:
        spec: what a table holds.
        warm_rounds: rounds before the first table is sent.

    Raises:
        ValueError: the rounds are below 0.
    """

    spec: Distillation
    warm_rounds: int = 0
    name: ClassVar[str] = "public-table"
    moment: ClassVar[Moment] = "end"

    def __post_init__(self) -> None:
        if self.warm_rounds < 0:
            raise ValueError(f"warm_rounds must be at least 0, not {self.warm_rounds}")

    def is_due(self, number: int) -> bool:
        """Tell whether the first rounds are over."""
        return number > self.warm_rounds

    def shapes(self, model: ModelState, facts: ModelFacts) -> Tensors:
        """Return the table, and a one that counts it."""
        return {"table": form(facts.public, facts.classes), "number": form()}

    def compute(self, view: ClientView) -> Tensors:
        """Return the outputs on all public inputs."""
        parts = [
            self.spec.table(run_network(view.model, inputs).logits.float(), view.facts.task)
            for inputs in view.public()
        ]
        empty = torch.empty(0, view.facts.classes)
        return {"table": torch.cat(parts) if parts else empty, "number": torch.ones(())}

    def fault(self, values: Tensors) -> str | None:
        """Refuse another number of tables than one, and probabilities that are none."""
        if float(values["number"]) != 1.0:
            return f"it counts as {float(values['number']):g} tables"
        table = values["table"]
        if self.spec.outputs == "probabilities" and ((table < 0) | (table > 1)).any():
            return "a probability is not from 0 to 1"
        return None


def mean_table(turn: Turn) -> Tensor | None:
    """Return the mean of the tables of a round; None if it has none."""
    number = turn.sums.get(f"{PublicTable.name}.number")
    if number is None or not float(number) > 0:
        return None
    return (turn.sums[f"{PublicTable.name}.table"] / number).float()


@dataclass(frozen=True)
class EnsembleDistillation(ServerStep):
    """The merged model is trained on public inputs towards the mean outputs of the clients."""

    name: ClassVar[str] = "ensemble"

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Return the trained model."""
        table = mean_table(turn)
        if table is None or turn.teach is None:
            return state, turn.merged
        return state, turn.teach(turn.merged, table)


@dataclass(frozen=True)
class Consensus(ServerStep):
    """Keeps the mean of the clients' tables, which those of the next round learn."""

    name: ClassVar[str] = CONSENSUS

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return a table that counts as none."""
        return {"table": torch.zeros(facts.public, facts.classes), "number": torch.zeros(())}

    def broadcast(self, state: Tensors, number: int) -> Tensors:
        """Return the table, and whether there is one."""
        return state

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Take the mean of this round's tables."""
        table = mean_table(turn)
        if table is None:
            return state, turn.merged
        return {"table": table, "number": torch.ones(())}, turn.merged


def feddf(
    *,
    steps: int = 500,
    batch_size: int = 128,
    lr: float = 1e-3,
    temperature: float = 1.0,
    clip: float = 5.0,
    mode: Mode = "eval",
) -> Method:
    """FedAvg, then the server distils the clients' outputs.

    Args:
        steps: steps of the server in a round; at 0 the method is FedAvg.
        batch_size: public inputs in a step.
        lr: learning rate of Adam, which falls to zero over the steps along a cosine.
        temperature: divides the logits of clients and server.
        clip: the largest norm of a gradient.
        mode: "eval": normalization works by the merged statistics; "train": as in training.
    """
    spec = Distillation(
        taught="server",
        steps=steps,
        batch_size=batch_size,
        lr=lr,
        cosine=True,
        clip=clip,
        temperature=temperature,
        mode=mode,
    )
    return Method(
        "FedDF",
        distillation=spec,
        statistics=(PublicTable(spec),),
        server=(EnsembleDistillation(),),
    )


def fedmd(
    *,
    distance: Distance = "mae",
    public_epochs: int = 1,
    batch_size: int = 256,
    lr: float = 1e-3,
    warm_rounds: int = 0,
) -> Method:
    """Clients keep their models and learn the mean of all outputs.

    Args:
        distance: "mae" or "mse" of logits, or "kl" of probabilities.
        public_epochs: passes over the public inputs in a round; at 0 every client is alone.
        batch_size: public inputs in a step.
        lr: learning rate of Adam on public inputs.
        warm_rounds: rounds of local training before the first exchange.
    """
    spec = Distillation(
        taught="clients",
        distance=distance,
        epochs=public_epochs,
        batch_size=batch_size,
        lr=lr,
    )
    return Method(
        "FedMD",
        personal=KeptEntries("all"),
        distillation=spec,
        statistics=(PublicTable(spec, warm_rounds),),
        server=(Consensus(),),
    )
