"""The server steps of a method: what the server keeps, broadcasts and does beside merging."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor, nn

from fedbb.records import (
    ClientInfo,
    FloatArray,
    IntArray,
    LabelCounts,
    ModelState,
    RunFacts,
    Task,
    Tensors,
    Visibility,
)


@dataclass(frozen=True, eq=False)
class Turn:
    """What a server step works on in a round.

    Args:
        round: the number of the round, from 1.
        before: the model that the clients started from.
        merged: the model after the merge and the steps before this one.
        clients: the clients that count, in rising order.
        facts: the run.
        sums: the sums over these clients of statistics that are summed, in float64, by full name.
        each: the other statistics, by full name and client.
        updates: the trained models of these clients, if a step asks for them.
        teach: trains a model on the public inputs towards a table of outputs, (P, C), as the
            method's distillation says, and returns it; None without public inputs.
        infos: what every client declares, if a step asks for the models.
    """

    round: int
    before: ModelState
    merged: ModelState
    clients: tuple[int, ...]
    facts: RunFacts
    sums: Tensors = field(default_factory=dict)
    each: Mapping[str, Mapping[int, Tensor]] = field(default_factory=dict)
    updates: Mapping[int, ModelState] = field(default_factory=dict)
    teach: Callable[[ModelState, Tensor], ModelState] | None = None
    infos: tuple[ClientInfo, ...] = ()


class ServerStep:
    """A step that does nothing; subclass it as a frozen dataclass and override what is needed.

    All of its functions are pure. A step gets and returns only its own part of the server state,
    whose names, types and shapes are those that `begin` returned. Random numbers come from named
    streams of the run's seed, such as `stream(facts.seed, name, number)`.

    Attributes:
        name: distinguishes the steps of a method, and begins the names of what a step broadcasts.
        sets_classifier: whether the served model has another classifier than the trained one.
        sees_updates: whether it needs the trained model of every client.
        sets_weights: whether it merges these models itself, by weights of its own.
        shares_model: whether the merged model can be used as it is; if not, every client has the
            model that `start` returns, and a run is scored by those.
        has_consensus: whether the clients' models are meant to agree, so that a run records how far
            they are apart.
    """

    name: ClassVar[str]
    sets_classifier: ClassVar[bool] = False
    sees_updates: ClassVar[bool] = False
    sets_weights: ClassVar[bool] = False
    shares_model: ClassVar[bool] = True
    has_consensus: ClassVar[bool] = False

    @property
    def visibility(self) -> Visibility:
        """What the server must see: more than sums if it weighs or draws single clients."""
        if self.sees_updates:
            return Visibility.UPDATES
        single = ("weigh", "weigh_present", "shares", "start")
        weighs = any(getattr(type(self), one) is not getattr(ServerStep, one) for one in single)
        return Visibility.FIGURES if weighs else Visibility.SUMS

    def supports(self, task: Task) -> bool:
        """Return whether the step is defined for this task."""
        return True

    def check(self, classes: int, width: int | None) -> None:
        """Refuse a network, before a run begins, that the step cannot work with.

        Args:
            classes: the number of classes.
            width: the width of the embedding, if the classifier is a linear layer.

        Raises:
            ValueError: why the step cannot work with it.
        """

    def check_network(self, network: nn.Module) -> None:
        """Refuse a network without what the step reads of clients' models.

        Raises:
            ValueError: why the step cannot work with it.
        """

    def measure(self, counts: LabelCounts) -> IntArray | None:
        """Return, at a client and once, integers whose sum over all clients the server learns."""
        return None

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return the server state before round 1.

        Args:
            first: the model that round 1 starts from.
            facts: the run.
            measured: the sum over all clients of what `measure` returned.
        """
        return {}

    def broadcast(self, state: Tensors, number: int) -> Tensors:
        """Return what the clients of a round get beside the model."""
        return {}

    def weigh(self, state: Tensors, weights: FloatArray) -> FloatArray:
        """Return the weights of all clients, none below 0; they are renormalized afterwards."""
        return weights

    def weigh_present(self, state: Tensors, clients: IntArray, weights: FloatArray) -> FloatArray:
        """Return the weights of the clients that replied, in rising order, not all 0."""
        return weights

    def shares(self, state: Tensors) -> FloatArray | None:
        """Return the probability of each client in a draw; None if the step does not choose."""
        return None

    def start(self, state: Tensors, client: int, model: ModelState) -> ModelState:
        """Return the model that a client starts a round from, given the global one."""
        return model

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Return the server state and the model after a round."""
        return state, turn.merged

    def calibrate(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Return both once more, given the statistics of the merged model.

        It is called after all steps, in rounds in which the method has statistics of the moment
        "merged"; `turn` holds those.
        """
        return state, turn.merged

    def serve(self, state: Tensors, model: ModelState) -> ModelState:
        """Return the model to score and to deploy, given the trained one."""
        return model
