"""A method that fills every slot, so that each of them changes the result."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from fedbb.aggregation.server_step import ServerStep
from fedbb.methods import Method
from fedbb.models.base import run_network
from fedbb.penalties.base import BoundPenalty, Needs
from fedbb.records import ModelState
from fedbb.sampling import Sampling
from fedbb.statistics import Statistic, form


@dataclass(frozen=True)
class DrawSome(Sampling):
    """Clients are chosen by size; each trains on a few samples, drawn anew in every round."""

    number: int = 9
    by_size: ClassVar[bool] = True

    def size(self, samples):
        return self.number

    def draw(self, samples, rng):
        return rng.choice(samples, self.number, replace=samples < self.number)


@dataclass(frozen=True)
class OwnHead:
    """A head of the client's own behind the network's embedding; the shared part feels it too."""

    needs: ClassVar[Needs] = Needs(embedding=True, keeps="own-head")

    def bind(self, anchors):
        head = nn.Linear(8, 3)
        state = anchors.kept or {"weight": torch.zeros(3, 8), "bias": torch.zeros(3)}
        head.load_state_dict(dict(state))
        shift = anchors.broadcast["all.shift"]

        def value(step):
            logits = head(step.outputs.embedding[:, :8]) + shift.to(step.outputs.logits)
            return 0.5 * F.cross_entropy(logits, step.targets)

        return BoundPenalty(value, head, lambda result: dict(head.state_dict()))


@dataclass(frozen=True)
class StartLoss(Statistic):
    name: ClassVar[str] = "start-loss"
    join: ClassVar[str] = "each"

    def shapes(self, model, facts):
        return {"loss": form(dtype=torch.float64)}

    def compute(self, view):
        total = sum(
            F.cross_entropy(run_network(view.model, x).logits, y, reduction="sum").double()
            for x, y in view.batches()
        )
        return {"loss": total / view.counts.samples}

    def fault(self, values):
        return None if values["loss"] >= 0 else "a loss is below 0"


@dataclass(frozen=True)
class HeadChange(Statistic):
    """How far the client's own head moved in the round."""

    name: ClassVar[str] = "head-change"
    moment: ClassVar[str] = "end"

    def shapes(self, model, facts):
        return {"weight": form(facts.classes, 8)}

    def compute(self, view):
        after = view.after["own-head.weight"]
        return {"weight": after - view.before.get("own-head.weight", torch.zeros_like(after))}


@dataclass(frozen=True)
class LogitSum(Statistic):
    """The sum of the merged model's logits, in every second round."""

    name: ClassVar[str] = "logit-sum"
    moment: ClassVar[str] = "merged"

    def is_due(self, number):
        return number % 2 == 0

    def shapes(self, model, facts):
        return {"logits": form(facts.classes, dtype=torch.float64)}

    def compute(self, view):
        sums = [run_network(view.model, x).logits.double().sum(0) for x, _ in view.batches()]
        return {"logits": torch.stack(sums).sum(0)}


@dataclass(frozen=True)
class All(ServerStep):
    """Uses everything that a server step can use."""

    name: ClassVar[str] = "all"

    def measure(self, counts):
        return np.asarray(counts.positive, dtype=np.int64)

    def begin(self, first, facts, measured):
        shares = torch.from_numpy(measured / measured.sum()).float()
        return {
            "shift": torch.zeros(facts.classes),
            "shares": shares,
            "weights": torch.ones(facts.clients, dtype=torch.float64),
        }

    def broadcast(self, state, number):
        return {"shift": state["shift"]}

    def weigh(self, state, weights):
        return weights * state["weights"].numpy()

    def step(self, state, turn):
        weights = state["weights"].clone()
        for client, loss in turn.each["start-loss.loss"].items():
            weights[client] += loss
        shift = state["shift"] + turn.sums["head-change.weight"].sum(1).float()
        changed = {
            name: tensor + 0.25 * (tensor - turn.before.params[name])
            for name, tensor in turn.merged.params.items()
        }
        model = ModelState(changed, turn.merged.buffers)
        return {**state, "shift": shift, "weights": weights}, model

    def calibrate(self, state, turn):
        shift = state["shift"] + 1e-3 * turn.sums["logit-sum.logits"].float()
        return {**state, "shift": shift}, turn.merged

    def serve(self, state, model):
        shape = state["shift"].shape  # the order of parameters differs by engine
        bias = next(
            name
            for name, tensor in model.params.items()
            if name.endswith("bias") and tensor.shape == shape
        )
        served = model.params[bias] + 0.1 * state["shift"] - state["shares"].log()
        return ModelState({**model.params, bias: served}, model.buffers)


def slot_method():
    return Method(
        "all slots",
        penalties=(OwnHead(),),
        sampling=DrawSome(),
        statistics=(StartLoss(), HeadChange(), LogitSum()),
        server=(All(),),
    )
