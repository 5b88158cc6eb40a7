"""Server steps whose served model has another classifier than the trained one."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fedbb.aggregation.server_step import ServerStep, Turn
from fedbb.models.base import classifier_parameters
from fedbb.records import IntArray, ModelState, RunFacts, Tensors
from fedbb.state import select

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
