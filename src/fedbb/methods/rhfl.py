"""RHFL (Fang and Ye 2022): clients with noisy labels learn from one another on public inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.distillation import CONSENSUS, Distillation
from fedbb.losses.symmetric import Symmetric
from fedbb.methods.distillation import Consensus, PublicTable
from fedbb.methods.record import Method
from fedbb.models.base import run_network
from fedbb.personal import KeptEntries
from fedbb.records import (
    FloatArray,
    IntArray,
    ModelFacts,
    ModelState,
    RunFacts,
    Tensors,
    Visibility,
)
from fedbb.statistics import ClientView, Join, Moment, Statistic, form

Confidence = Literal["rhfl", "equal"]

LEAST = 1e-12
"""The least sum of qualities that is divided by."""


@dataclass(frozen=True)
class PeerDistillation(Distillation):
    """Each client learns the weighted mean of the other clients' probabilities.

    The server sends the mean over all and the weights; a client takes its own part out.
    """

    @property
    def keeps(self) -> bool:
        """Keep the client's own table, to take it out of the mean."""
        return True

    def target(self, broadcast: Tensors, kept: Tensors, client: int) -> Tensor | None:
        """Return the mean of the others; None if there are none."""
        weights = broadcast[f"{CONSENSUS}.weights"].double()
        table, total = broadcast[f"{CONSENSUS}.table"].double(), float(weights.sum())
        if "table" in kept:
            own = float(weights[client])
            table, total = table - own * kept["table"].double(), total - own
        return (table / total).clamp(0.0, 1.0).float() if total > LEAST else None

    def keep(self, found: Tensors) -> Tensors:
        """Return the client's own table, if it sent one."""
        table = found.get(f"{PublicTable.name}.table")
        return {} if table is None else {"table": table}


@dataclass(frozen=True)
class SingleTable(PublicTable):
    """As `PublicTable`; the server gets that of every client."""

    join: ClassVar[Join] = "each"


@dataclass(frozen=True)
class PrivateLoss(Statistic):
    """The mean loss of a client's trained model on its own samples.

    Args:
        loss: what is measured.
        warm_rounds: rounds before it is sent.
    """

    loss: Symmetric
    warm_rounds: int = 0
    name: ClassVar[str] = "private-loss"
    moment: ClassVar[Moment] = "end"
    join: ClassVar[Join] = "each"

    def is_due(self, number: int) -> bool:
        """Tell whether the first rounds are over."""
        return number > self.warm_rounds

    def shapes(self, model: ModelState, facts: ModelFacts) -> Tensors:
        """Return one number."""
        return {"loss": form(dtype=torch.float64)}

    def compute(self, view: ClientView) -> Tensors:
        """Return the mean over all samples, in evaluation."""
        measure = self.loss.bind(view.counts, view.facts.task)
        total = torch.zeros((), dtype=torch.float64)
        for inputs, targets in view.batches():
            loss = measure.to(inputs.device)(run_network(view.model, inputs).logits, targets)
            total += loss.double().cpu() * len(targets)
        return {"loss": total / view.counts.samples}

    def fault(self, values: Tensors) -> str | None:
        """Refuse a loss below 0."""
        return None if float(values["loss"]) >= 0 else "a loss is below 0"


def confidence_weights(before: FloatArray, now: FloatArray, strength: float) -> FloatArray:
    """Return the weight of each client's table; they sum to one.

    The quality of a client is the drop of its loss over the loss, F = (before − now) / now; its
    weight is the softmax of 1/(K−1) + strength · F / Σ|F|.

    Args:
        before: the losses before the last round, (K,); NaN where there was none, for F = 0.
        now: the losses after it, (K,).
        strength: how much quality counts; at 0 all weights are the same.
    """
    quality = np.nan_to_num((before - now) / np.maximum(now, LEAST), nan=0.0)
    whole = max(float(np.abs(quality).sum()), LEAST)
    amount = 1 / max(1, len(now) - 1) + strength * quality / whole
    shares = np.exp(amount - amount.max())
    return np.asarray(shares / shares.sum())


@dataclass(frozen=True)
class ClientConfidence(ServerStep):
    """Keeps every client's last table and losses, and weighs the tables by confidence.

    Args:
        strength: how much the quality of a client counts.

    Raises:
        ValueError: the strength is below 0.
    """

    strength: float = 0.5
    name: ClassVar[str] = CONSENSUS

    def __post_init__(self) -> None:
        if not 0.0 <= self.strength < float("inf"):
            raise ValueError(f"strength must be a finite number of at least 0, not {self.strength}")

    @property
    def visibility(self) -> Visibility:
        """Each client's table and loss."""
        return Visibility.FIGURES

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return no tables, and losses of −1, which stand for none."""
        none = torch.full((facts.clients,), -1.0, dtype=torch.float64)
        shape = (facts.public, facts.classes)
        return {
            "tables": torch.zeros(facts.clients, *shape),
            "before": none,
            "now": none.clone(),
            "weights": torch.zeros(facts.clients),
            "table": torch.zeros(shape),
        }

    def broadcast(self, state: Tensors, number: int) -> Tensors:
        """Return the weighted mean of all tables, and the weights."""
        return {name: state[name] for name in ("table", "weights")}

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Take this round's tables and losses, and weigh all tables anew."""
        found = turn.each.get(f"{PublicTable.name}.table", {})
        if not found:
            return state, turn.merged
        after = {name: tensor.clone() for name, tensor in state.items()}
        for client, table in found.items():
            after["tables"][client] = table
            after["before"][client] = state["now"][client]
            after["now"][client] = turn.each[f"{PrivateLoss.name}.loss"][client]
        known = (after["now"] >= 0).numpy()
        before, now = after["before"].numpy()[known], after["now"].numpy()[known]
        before = np.where(before < 0, np.nan, before)
        # Rounded before they are used: clients take their own part out by these numbers.
        weights = torch.zeros(len(known))
        found_weights = confidence_weights(before, now, self.strength)
        weights[torch.from_numpy(known)] = torch.from_numpy(found_weights).float()
        total = torch.zeros(state["table"].shape, dtype=torch.float64)
        for client in np.flatnonzero(known).tolist():
            total += weights[client].double() * after["tables"][client].double()
        return {**after, "weights": weights, "table": total.float()}, turn.merged


def rhfl(
    *,
    alpha: float = Symmetric.alpha,
    beta: float = Symmetric.beta,
    confidence: Confidence = "rhfl",
    strength: float = ClientConfidence.strength,
    public_epochs: int = 1,
    batch_size: int = 256,
    lr: float = 1e-3,
    warm_rounds: int = 0,
) -> Method:
    """Symmetric loss; clients learn from reliable others' outputs.

    Args:
        alpha: factor on the cross-entropy.
        beta: factor on the reverse cross-entropy.
        confidence: "rhfl" weighs clients by the drop of their loss; "equal" weighs all alike, and
            the server needs sums only.
        strength: how much the quality of a client counts under "rhfl".
        public_epochs: passes over the public inputs in a round; at 0 every client is alone.
        batch_size: public inputs in a step.
        lr: learning rate of Adam on public inputs.
        warm_rounds: rounds of local training before the first exchange.

    Raises:
        ValueError: a value is out of range, or `confidence` is neither.
    """
    if confidence not in ("rhfl", "equal"):
        raise ValueError(f'confidence is "rhfl" or "equal", not {confidence!r}')
    loss = Symmetric(alpha, beta)
    is_equal = confidence == "equal"
    make = Distillation if is_equal else PeerDistillation
    spec = make(
        taught="clients",
        outputs="probabilities",
        epochs=public_epochs,
        batch_size=batch_size,
        lr=lr,
    )
    tables: tuple[Statistic, ...] = (PublicTable(spec, warm_rounds),)
    if not is_equal:
        tables = (SingleTable(spec, warm_rounds), PrivateLoss(loss, warm_rounds))
    return Method(
        "RHFL",
        loss,
        personal=KeptEntries("all"),
        distillation=spec,
        statistics=tables,
        server=(Consensus() if is_equal else ClientConfidence(strength),),
    )
