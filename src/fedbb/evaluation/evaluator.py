"""Scoring model states on examples that were not trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from fedbb.data.dataset import Dataset, Examples
from fedbb.data.transforms import normalize
from fedbb.evaluation.metrics import Scores, score_multiclass, score_multilabel
from fedbb.models.base import run_network
from fedbb.records import FloatArray, ModelState, Task
from fedbb.state import restore


@dataclass(frozen=True, eq=False)
class Scorer:
    """Scores states on named sets of examples.

    Args:
        model: the network that states are restored into.
        dataset: its task, mean and standard deviation are used.
        examples: the examples by name, such as "validation" and "test".
        batch_size: the number of examples per forward pass; the bits of logits depend on it.
        device: the torch device.
    """

    model: nn.Module
    dataset: Dataset
    examples: Mapping[str, Examples]
    batch_size: int = 256
    device: str = "cpu"

    def __call__(self, state: ModelState) -> dict[str, Scores]:
        """Return the scores of this state on every set."""
        restore(self.model, state)
        return {
            name: score_logits(
                self.predict(part, 0, len(part.labels)), part.labels, self.dataset.task
            )
            for name, part in self.examples.items()
        }

    def predict(self, examples: Examples, start: int, stop: int) -> FloatArray:
        """Return the logits (N, C) of the examples from `start` to `stop` by the model as it is.

        Parts that begin at whole batches have the same bits as all examples at once.
        """
        self.model.eval()
        parts = []
        with torch.inference_mode():
            for first in range(start, stop, self.batch_size):
                # A copy, since torch will not share the memory of a file that is mapped read-only.
                images = torch.tensor(examples.inputs[first : min(first + self.batch_size, stop)])
                images = normalize(images, self.dataset.mean, self.dataset.std).to(self.device)
                parts.append(run_network(self.model, images).logits.double().cpu().numpy())
        return np.concatenate(parts)


def score_logits(logits: FloatArray, labels: npt.ArrayLike, task: Task) -> Scores:
    """Return the scores of logits (N, C); FloatingPointError if they are not finite."""
    if not np.all(np.isfinite(logits)):
        raise FloatingPointError("gives outputs that are not finite")
    score = score_multiclass if task is Task.MULTICLASS else score_multilabel
    return score(logits, labels)
