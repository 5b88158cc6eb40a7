"""CCVR in a run: class moments of the merged model, and a classifier trained on drawn features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedbb.aggregation.server_step import Turn
from fedbb.classifiers.head import Head, embed, head_width, place_head, read_head
from fedbb.classifiers.retraining import Retraining
from fedbb.classifiers.served import ServedClassifier, served_classifier
from fedbb.classifiers.sums import case_fault
from fedbb.classifiers.virtual_features import (
    ClassMoments,
    class_moments,
    draw_features,
    moment_shapes,
)
from fedbb.records import ModelFacts, ModelState, Task, Tensors
from fedbb.rng import stream
from fedbb.state import select
from fedbb.statistics.base import ClientView, Moment, Statistic, form

RETRAINING = Retraining(epochs=1, batch_size=64, lr=0.01)


@dataclass(frozen=True)
class FeatureMoments(Statistic):
    """Number, sum and products of a client's embeddings by class, by the merged model.

    Args:
        diagonal: whether only squares are added up in place of all products.
        every: computed in every round whose number this divides.
    """

    diagonal: bool = False
    every: int = 1
    name: ClassVar[str] = "moments"
    by_class: ClassVar[bool] = True
    linear_classifier: ClassVar[bool] = True
    moment: ClassVar[Moment] = "merged"

    def shapes(self, model: ModelState, facts: ModelFacts) -> Tensors:
        """Return the shapes of the moments."""
        shapes = moment_shapes(facts.classes, head_width(model, facts), self.diagonal)
        return {name: form(*shape, dtype=torch.float64) for name, shape in shapes.items()}

    def compute(self, view: ClientView) -> Tensors:
        """Return the moments of the client's samples."""
        total: dict[str, Tensor] = {}
        for inputs, targets in view.batches():
            part = class_moments(
                embed(view.model, inputs), targets.cpu(), view.facts.classes, self.diagonal
            ).tensors()
            total = {name: total[name] + part[name] if total else part[name] for name in part}
        return total

    def fault(self, values: Tensors) -> str | None:
        """Refuse counts that are no counts, and sums of classes that have none."""
        return case_fault(values["counts"], values["sums"], values["products"])


@dataclass(frozen=True)
class VirtualFeatures(ServedClassifier):
    """The served classifier is the trained one, trained on with features drawn at the server.

    Args:
        features: virtual features of each class.
        retraining: how the classifier is trained on them.

    Raises:
        ValueError: a value outside of its range.
    """

    features: int = 200
    retraining: Retraining = RETRAINING
    name: ClassVar[str] = "ccvr"

    def __post_init__(self) -> None:
        if self.features < 0:
            raise ValueError(f"features must be at least 0, not {self.features}")

    def supports(self, task: Task) -> bool:
        """Support multi-class only: features are of one class each."""
        return task is Task.MULTICLASS

    def calibrate(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Draw features from the moments of the round's clients, and train the classifier."""
        facts, classifier = turn.facts, str(turn.facts.classifier)
        moments = ClassMoments.from_tensors(select(turn.sums, f"{FeatureMoments.name}."))
        rng = stream(facts.seed, "ccvr features", turn.round)
        features, labels = draw_features(moments, self.features, rng)
        trained = read_head(turn.merged, classifier)
        head = self.retraining(
            Head(trained.weight.float(), trained.bias.float()),
            features.float(),
            labels,
            lambda epoch: stream(facts.seed, "ccvr order", turn.round, epoch).permutation(
                len(labels)
            ),
        )
        model = place_head(turn.merged, classifier, head)
        return served_classifier(model, facts, True), turn.merged
