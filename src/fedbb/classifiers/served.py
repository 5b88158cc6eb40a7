"""Server steps that serve another classifier than the trained one; the balanced classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.classifiers.closed_form import LDA, ClosedForm
from fedbb.classifiers.head import blend_heads, embed, head_width, limit_norm, place_head, read_head
from fedbb.classifiers.sums import EmbeddingSums, add_sums, case_fault, sum_embeddings, sum_shapes
from fedbb.models.base import classifier_parameters
from fedbb.records import IntArray, ModelFacts, ModelState, RunFacts, Tensors
from fedbb.state import select
from fedbb.statistics import ClientView, Moment, Statistic, form

FITTED = "fitted"
PARAMETERS = "parameters."


class ServedClassifier(ServerStep):
    """Serves the classifier of the round in which it was fitted, and else the trained one.

    A step that derives from it fits a classifier in `step` or `calibrate`, and keeps it by
    `served_classifier`.
    """

    sets_classifier: ClassVar[bool] = True

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return a place for the classifier, which is that of the trained model."""
        return served_classifier(first, facts, False)

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Forget the classifier of an earlier round: the embedding has changed since."""
        return {**state, FITTED: torch.zeros_like(state[FITTED])}, turn.merged

    def serve(self, state: Tensors, model: ModelState) -> ModelState:
        """Return the model with the classifier of this round, if it was fitted."""
        if not state[FITTED].item():
            return model
        return ModelState({**model.params, **select(state, PARAMETERS)}, model.buffers)


def served_classifier(model: ModelState, facts: RunFacts, fitted: bool) -> dict[str, Tensor]:
    """Return a model's classifier as a server state keeps it, and whether it is to be served."""
    names = classifier_parameters(str(facts.classifier))
    kept = {f"{PARAMETERS}{name}": model.params[name].clone() for name in names}
    return {FITTED: torch.tensor([float(fitted)]), **kept}


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
        """Refuse counts that are not counts, and products that no embeddings have."""
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
