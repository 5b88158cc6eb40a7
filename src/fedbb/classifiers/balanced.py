"""The balanced classifier in a run: sums of embeddings of the merged model, and a closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from fedbb.aggregation.server_step import Turn
from fedbb.classifiers.closed_form import LDA, ClosedForm
from fedbb.classifiers.head import (
    blend_heads,
    embed,
    head_width,
    limit_norm,
    place_head,
    read_head,
)
from fedbb.classifiers.served import ServedClassifier, served_classifier
from fedbb.classifiers.sums import (
    EmbeddingSums,
    add_sums,
    case_fault,
    sum_embeddings,
    sum_shapes,
)
from fedbb.records import ModelFacts, ModelState, Tensors
from fedbb.state import select
from fedbb.statistics.base import ClientView, Moment, Statistic, form

ROUNDING = 1e-6
"""How far sums of a client may contradict each other, relative to their size."""


@dataclass(frozen=True)
class SummedEmbeddings(Statistic):
    """A client's embeddings by the merged model, added up by class, and their products.

    Args:
        every: computed in every round whose number this divides.
    """

    every: int = 1
    name: ClassVar[str] = "embeddings"
    by_class: ClassVar[bool] = True
    linear_classifier: ClassVar[bool] = True
    moment: ClassVar[Moment] = "merged"

    def shapes(self, model: ModelState, facts: ModelFacts) -> Tensors:
        """Return the shapes of the sums."""
        width = head_width(model, facts)
        return {
            name: form(*shape, dtype=torch.float64)
            for name, shape in sum_shapes(facts.classes, width, facts.task).items()
        }

    def compute(self, view: ClientView) -> Tensors:
        """Return the sums over the client's samples."""
        return add_sums(
            sum_embeddings(
                embed(view.model, inputs), targets.cpu(), view.facts.classes, view.facts.task
            )
            for inputs, targets in view.batches()
        ).tensors()

    def fault(self, values: Tensors) -> str | None:
        """Refuse counts that are no counts, and products that no embeddings have."""
        sums = EmbeddingSums.from_tensors(values)
        counts, samples = sums.counts, sums.samples
        if (fault := case_fault(counts, sums.sums)) is not None:
            return fault
        if samples < 1 or (counts.sum(dim=0) > samples).any():
            return f"its classes count more than its {samples:g} samples"
        # Cauchy and Schwarz: a sum of n vectors is at most √n times as long as all of them.
        variances = sums.covariance().diagonal()
        if (variances < -ROUNDING * (1 + variances.abs().max())).any():
            return "its embeddings have a variance below 0"
        return None


@dataclass(frozen=True)
class BalancedClassifier(ServedClassifier):
    """The served model has a classifier in closed form, in every round in which it is computed.

    Args:
        closed_form: how it follows from the sums.
        blend: its share in the served classifier; the rest is the trained one.
        restart: whether the next round starts from it; else training goes on as without it. It
            then starts with weights no larger than the trained ones, see `limit_norm`.

    Raises:
        ValueError: a value outside of its range.
    """

    closed_form: ClosedForm = LDA
    blend: float = 1.0
    restart: bool = False
    name: ClassVar[str] = "classifier"

    def __post_init__(self) -> None:
        if isinstance(self.blend, str):
            raise ValueError(
                f"blend is a number from 0 to 1 in a run, not {self.blend!r}: a server may have no "
                "validation data; fedbb refit RUN --blend validation chooses it afterwards"
            )
        if not 0.0 <= self.blend <= 1.0:
            raise ValueError(f"blend must be in [0, 1], not {self.blend}")

    def calibrate(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Set the classifier from the sums over the clients of the round."""
        classifier = str(turn.facts.classifier)
        sums = EmbeddingSums.from_tensors(select(turn.sums, f"{SummedEmbeddings.name}."))
        fitted = self.closed_form.fit(sums, turn.facts.task)
        trained = read_head(turn.merged, classifier)
        head = blend_heads(trained, fitted, sums, self.blend, turn.facts.task)
        model = place_head(turn.merged, classifier, head)
        kept = served_classifier(model, turn.facts, True)
        if not self.restart:
            return kept, turn.merged
        return kept, place_head(turn.merged, classifier, limit_norm(head, trained))
