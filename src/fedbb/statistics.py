"""The statistics of a method: named tensors that a client computes and sends beside its update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from fedbb.records import LabelCounts, ModelFacts, ModelState, Tensors, Visibility

Join = Literal["sum", "each"]
Moment = Literal["start", "end", "merged"]


@dataclass(frozen=True, eq=False)
class ClientView:
    """What a statistic may look at; nothing in it may be changed.

    Args:
        model: the network in evaluation mode, with the weights of the statistic's moment.
        batches: yields inputs and targets of all the client's samples, on the network's device:
            in the order of its rows, normalized, not augmented.
        counts: the client's label counts.
        facts: the task and the network.
        round: the number of the round, from 1.
        broadcast: what the server sent beside the model.
        before: what the client kept from the last round it took part in, by full name.
        after: what it keeps after this one; like `before` until it has trained.
        public: yields the public inputs in their order, as the network gets them.
    """

    model: nn.Module
    batches: Callable[[], Iterator[tuple[Tensor, Tensor]]]
    counts: LabelCounts
    facts: ModelFacts
    round: int
    broadcast: Tensors = field(default_factory=dict)
    before: Tensors = field(default_factory=dict)
    after: Tensors = field(default_factory=dict)
    public: Callable[[], Iterator[Tensor]] = lambda: iter(())


class Statistic:
    """A spec of what a client computes beside its update; subclass it as a frozen dataclass.

    Attributes:
        name: begins the names of its tensors wherever they go: "name.tensor".
        moment: when it is computed: by the model that the client receives ("start"), by the model
            that it has trained ("end"), or by the merged model of the round, which is sent to the
            clients of the round a second time ("merged").
        join: what the server gets: the "sum" over clients, or "each" client's own. Secure
            aggregation supports sums only.
        linear_classifier: whether the network's classifier must be a linear layer with a bias.
        by_class: whether it shows which classes a client holds, to a server that sees it.
        every: it is computed in every round whose number this divides.

    Raises:
        ValueError: `every`, which a subclass may have as a field, is below 1.
    """

    name: ClassVar[str]
    every: int = 1
    moment: ClassVar[Moment] = "start"
    join: ClassVar[Join] = "sum"
    linear_classifier: ClassVar[bool] = False
    by_class: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every must be at least 1, not {self.every}")

    @property
    def visibility(self) -> Visibility:
        """What the server must see."""
        return Visibility.SUMS if self.join == "sum" else Visibility.FIGURES

    def is_due(self, number: int) -> bool:
        """Tell whether it is computed in this round."""
        return number % self.every == 0

    def shapes(self, model: ModelState, facts: ModelFacts) -> Tensors:
        """Return tensors with the names, types and shapes of what `compute` returns.

        Their values do not matter; `form` makes tensors without any.
        """
        raise NotImplementedError

    def compute(self, view: ClientView) -> Tensors:
        """Return the statistic of one client; a function of the view alone."""
        raise NotImplementedError

    def fault(self, values: Tensors) -> str | None:
        """Return why values of the right shapes, all finite, are impossible; None if they are not.

        The server rejects the reply of a client with such values.
        """
        return None


def form(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a tensor of a type and a shape that holds no values."""
    return torch.empty(shape, dtype=dtype, device="meta")


def statistic_shapes(
    statistics: tuple[Statistic, ...], model: ModelState, facts: ModelFacts
) -> dict[str, Tensor]:
    """Return the shapes of all tensors of these statistics by their full names."""
    return {
        f"{statistic.name}.{name}": tensor
        for statistic in statistics
        for name, tensor in statistic.shapes(model, facts).items()
    }


def moments_of(*, measure: bool) -> tuple[Moment, ...]:
    """Return the moments of a job: those of training, or that of the merged model."""
    return ("merged",) if measure else ("start", "end")


def due(statistics: tuple[Statistic, ...], number: int, *moments: Moment) -> tuple[Statistic, ...]:
    """Return the statistics that are computed in a round at one of these moments."""
    return tuple(
        statistic
        for statistic in statistics
        if statistic.moment in moments and statistic.is_due(number)
    )
