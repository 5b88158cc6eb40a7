"""Scoring a model state on examples that were not trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from fedbb.data.augment import normalize
from fedbb.data.dataset import Dataset, Examples
from fedbb.evaluation.metrics import Scores, score_multiclass, score_multilabel
from fedbb.models.base import NetworkModule
from fedbb.records import FloatArray, ModelState, Task
from fedbb.state import restore


@dataclass(frozen=True, eq=False)
class Scorer:
    """Scores states on named sets of examples, such as validation and test."""

    model: NetworkModule
    dataset: Dataset
    examples: Mapping[str, Examples]
    batch_size: int = 256
    device: str = "cpu"

    def __call__(self, state: ModelState) -> dict[str, Scores]:
        """Return the scores of this state on every set."""
        restore(self.model, state)
        score = score_multiclass if self.dataset.task is Task.MULTICLASS else score_multilabel
        return {
            name: score(self.predict(examples), examples.labels)
            for name, examples in self.examples.items()
        }

    def predict(self, examples: Examples) -> FloatArray:
        """Return the logits (N, C) of the model as it stands."""
        self.model.eval()
        parts = []
        with torch.inference_mode():
            for start in range(0, len(examples), self.batch_size):
                # A copy, since torch will not share the memory of a file that is mapped read-only.
                images = torch.tensor(examples.images[start : start + self.batch_size])
                images = normalize(images, self.dataset.mean, self.dataset.std).to(self.device)
                parts.append(self.model(images).logits.double().cpu().numpy())
        logits = np.concatenate(parts)
        if not np.all(np.isfinite(logits)):
            raise FloatingPointError("gives outputs that are not finite")
        return logits
