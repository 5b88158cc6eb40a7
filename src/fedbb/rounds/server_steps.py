"""The server steps of a method in a run: applied in order, each to its part of the server state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from fedbb.aggregation.label_counts import FederationCounts
from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.data.dataset import Dataset
from fedbb.errors import DivergedError
from fedbb.methods import Method
from fedbb.models.base import norm_names
from fedbb.records import (
    ClientUpdate,
    FloatArray,
    IntArray,
    LabelCounts,
    ModelState,
    RunFacts,
    Tensors,
)
from fedbb.simulation.inline import SimulationEngine
from fedbb.state import add_prefix, find_difference, is_finite, select
from fedbb.statistics import Statistic
from fedbb.training.config import LocalConfig
from fedbb.training.distill import ServerDistiller


@dataclass(frozen=True, eq=False)
class ServerSteps:
    """What a method's server steps do in a run; without any, the model stays as it was merged.

    The server state holds the tensors of every step under "name.tensor".

    Args:
        steps: the steps, in order.
        facts: the run.
        measured: the sum over all clients of what each step measures, by its name.
        distiller: trains the server's model on public inputs, where the method does so.
    """

    steps: tuple[ServerStep, ...] = ()
    facts: RunFacts | None = None
    measured: Mapping[str, IntArray] = field(default_factory=dict)
    distiller: ServerDistiller | None = None

    def begin(self, first: ModelState) -> dict[str, Tensor]:
        """Return the server state before round 1."""
        state: dict[str, Tensor] = {}
        for step in self.steps:
            own = step.begin(first, self.run, self.measured.get(step.name))
            state |= add_prefix(_prefix(step), own)
        return state

    def broadcast(self, state: Tensors, number: int) -> dict[str, Tensor]:
        """Return what the clients of a round get beside the model, under "name.tensor"."""
        sent: dict[str, Tensor] = {}
        for step in self.steps:
            own = step.broadcast(select(state, _prefix(step)), number)
            sent |= add_prefix(_prefix(step), own)
        return sent

    def weigh(self, state: Tensors, weights: FloatArray) -> FloatArray:
        """Return the weights of all clients, before they are renormalized."""
        for step in self.steps:
            weights = step.weigh(select(state, _prefix(step)), weights)
        return weights

    def weigh_present(self, state: Tensors, clients: IntArray, weights: FloatArray) -> FloatArray:
        """Return the weights of the clients that replied, before they are renormalized."""
        for step in self.steps:
            weights = step.weigh_present(select(state, _prefix(step)), clients, weights)
        return weights

    def shares(self, state: Tensors) -> FloatArray | None:
        """Return the probability of each client in a draw, by the first step that chooses."""
        found = (step.shares(select(state, _prefix(step))) for step in self.steps)
        return next((shares for shares in found if shares is not None), None)

    def start(self, state: Tensors, client: int, model: ModelState) -> ModelState:
        """Return the model that a client starts a round from."""
        for step in self.steps:
            model = step.start(select(state, _prefix(step)), client, model)
        return model

    def step(self, state: Tensors, turn: Turn) -> tuple[dict[str, Tensor], ModelState]:
        """Return the server state and the model after a round.

        Raises:
            DivergedError: either holds a number that is not finite.
        """
        return self._apply(state, turn, lambda step: step.step)

    def calibrate(self, state: Tensors, turn: Turn) -> tuple[dict[str, Tensor], ModelState]:
        """Return both once more, given the statistics of the merged model."""
        return self._apply(state, turn, lambda step: step.calibrate)

    def serve(self, state: Tensors, model: ModelState) -> ModelState:
        """Return the model to score and to deploy: the only way to it from the trained one."""
        for step in self.steps:
            model = step.serve(select(state, _prefix(step)), model)
        return model

    @property
    def sees_updates(self) -> bool:
        """Whether a step needs the trained model of every client."""
        return any(step.sees_updates for step in self.steps)

    @property
    def run(self) -> RunFacts:
        """The facts of the run, which steps need."""
        assert self.facts is not None
        return self.facts

    def _apply(
        self,
        state: Tensors,
        turn: Turn,
        choose: Callable[[ServerStep], Callable[[Tensors, Turn], tuple[Tensors, ModelState]]],
    ) -> tuple[dict[str, Tensor], ModelState]:
        after: dict[str, Tensor] = {}
        if self.distiller is not None:
            turn = replace(turn, teach=partial(self.distiller, turn.round))
        for step in self.steps:
            own = select(state, _prefix(step))
            kept, model = choose(step)(own, turn)
            if (name := find_difference(own, kept)) is not None:
                raise ValueError(f"server step {step.name} changed the form of its state in {name}")
            if not is_finite(ModelState(kept, {})) or not is_finite(model):
                raise DivergedError(
                    f"round {turn.round}, server step {step.name}: the model or the server state "
                    "holds values that are not finite; a lower method lr may help"
                )
            after |= add_prefix(_prefix(step), kept)
            turn = replace(turn, merged=model)
        return after, turn.merged


NO_SERVER_STEPS = ServerSteps()


def open_server_steps(
    engine: SimulationEngine, seed: int, *, label_counts: bool = False
) -> ServerSteps:
    """Return the server steps of a simulation.

    Args:
        engine: its method, and the clients of which the steps learn a sum.
        seed: the seed of the run.
        label_counts: whether the server learns the sum of the label counts, whatever the method.
    """
    method, clients = engine.method, engine.clients
    if not (method.server or label_counts):
        return NO_SERVER_STEPS
    dataset = clients[0].dataset
    facts = RunFacts(
        dataset.task,
        len(dataset.classes),
        engine.classifier,
        len(clients),
        seed,
        public=0 if dataset.public is None else len(dataset.public),
        norms=norm_names(engine.model),
    )
    measured = sum_measured(
        measure_counts(method, client.counts, label_counts=label_counts) for client in clients
    )
    return ServerSteps(
        method.server,
        facts,
        measured,
        open_distiller(method, engine.model, dataset, engine.local, seed),
    )


def open_distiller(
    method: Method, network: nn.Module, dataset: Dataset, local: LocalConfig, seed: int
) -> ServerDistiller | None:
    """Return what trains the server's model on public inputs; None if the method does not."""
    spec = method.distillation
    if spec is None or spec.taught != "server" or dataset.public is None:
        return None
    return ServerDistiller(network, dataset, spec, local, seed)


def _prefix(step: ServerStep) -> str:
    return f"{step.name}."


def measure_counts(
    method: Method, counts: LabelCounts, *, label_counts: bool = False
) -> dict[str, IntArray]:
    """Return, at a client, what is measured of its label counts, by name.

    Args:
        method: its server steps may measure something.
        counts: the client's label counts.
        label_counts: whether the counts themselves are measured, whatever the method.
    """
    steps = (*method.server, FederationCounts()) if label_counts else method.server
    found = {step.name: step.measure(counts) for step in steps}
    return {
        name: np.asarray(value, dtype=np.int64)
        for name, value in found.items()
        if value is not None
    }


def sum_measured(clients: Iterable[Mapping[str, IntArray]]) -> dict[str, IntArray]:
    """Return the sums over clients of what they measured."""
    total: dict[str, IntArray] = {}
    for measured in clients:
        for name, value in measured.items():
            total[name] = total[name] + value if name in total else value
    return total


class StatisticsCollector:
    """Joins the statistics of updates that pass by: sums in float64, in the order of arrival.

    Args:
        statistics: the statistics that the updates carry.
        hold: whether the trained models are held too.
    """

    def __init__(self, statistics: Sequence[Statistic], *, hold: bool = False) -> None:
        self._joins = {statistic.name: statistic.join for statistic in statistics}
        self.sums: dict[str, Tensor] = {}
        self.each: dict[int, Tensors] = {}
        self.updates: dict[int, ModelState] = {}
        self._hold = hold

    def watch(self, updates: Iterable[ClientUpdate]) -> Iterator[ClientUpdate]:
        """Pass updates on, and take their statistics."""
        for update in updates:
            self._add(update)
            if self._hold:
                self.updates[update.client] = update.state
            yield update

    def by_name(self) -> dict[str, dict[int, Tensor]]:
        """Return the statistics of each client, by name and then by client in rising order."""
        names = {name for tensors in self.each.values() for name in tensors}
        return {
            name: {client: self.each[client][name] for client in sorted(self.each)}
            for name in sorted(names)
        }

    def _add(self, update: ClientUpdate) -> None:
        single: dict[str, Tensor] = {}
        for name, tensor in update.statistics.items():
            if self._joins[name.partition(".")[0]] == "each":
                single[name] = tensor
            elif name in self.sums:
                self.sums[name] += tensor.to(torch.float64)
            else:
                self.sums[name] = tensor.to(torch.float64, copy=True)
        if single:
            self.each[update.client] = single
