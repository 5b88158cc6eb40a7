"""CCVR (Luo et al. 2021): a classifier trained on features drawn from a Gaussian for each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedbb.aggregation.server_step import Turn
from fedbb.classifiers.head import Head, embed, head_width, place_head, read_head
from fedbb.classifiers.retraining import Retraining
from fedbb.classifiers.served import ServedClassifier, served_classifier
from fedbb.classifiers.sums import case_fault, pack_triangle, unpack_triangle
from fedbb.methods.record import Method
from fedbb.records import ModelFacts, ModelState, Task, Tensors
from fedbb.rng import stream
from fedbb.state import select
from fedbb.statistics import ClientView, Moment, Statistic, form

RETRAINING = Retraining(epochs=1, batch_size=64, lr=0.01)
JITTER = 1e-6
"""What is added to each variance, as a share of the mean variance, so that Cholesky succeeds."""


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
        """Refuse counts that are not counts, and sums of classes that have none."""
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


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """Sums of the embeddings of each class, and of their products; all in float64.

    Args:
        counts: number of samples, (C,).
        sums: sum of the embeddings, (C, D).
        products: upper triangles, row by row, of Σ h·hᵀ, (C, D(D+1)/2); or Σ h², (C, D).
    """

    counts: Tensor
    sums: Tensor
    products: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums by name."""
        return {"counts": self.counts, "sums": self.sums, "products": self.products}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> ClassMoments:
        """Return the sums that `tensors` named."""
        return cls(tensors["counts"], tensors["sums"], tensors["products"])

    def gaussian(self, label: int) -> tuple[Tensor, Tensor]:
        """Return mean (D,) and covariance of a class that has samples.

        The covariance (D, D), or the variances (D,) where products are of one dimension each, are
        divided by n − 1; zero for a class of one sample.
        """
        number, width = float(self.counts[label]), self.sums.shape[1]
        mean = self.sums[label] / number
        scale = 1 / (number - 1) if number > 1 else 0.0
        if self.products.shape[1] == width:
            return mean, ((self.products[label] - number * mean.square()) * scale).clamp(min=0)
        second = unpack_triangle(self.products[label], width)
        return mean, (second - number * torch.outer(mean, mean)) * scale


def moment_shapes(classes: int, width: int, diagonal: bool) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the sums by name."""
    products = width if diagonal else width * (width + 1) // 2
    return {"counts": (classes,), "sums": (classes, width), "products": (classes, products)}


def class_moments(
    embeddings: Tensor, labels: Tensor, classes: int, diagonal: bool = False
) -> ClassMoments:
    """Add up embeddings (N, D) and their products by class.

    Args:
        embeddings: (N, D).
        labels: class numbers (N,).
        classes: number of classes.
        diagonal: whether only the squares are added up, which takes D numbers for each class.
    """
    wide = embeddings.double()
    cases = torch.nn.functional.one_hot(labels.long(), classes).double()
    if diagonal:
        products = cases.T @ wide.square()
    else:
        by_class = (wide[labels == label] for label in range(classes))
        products = torch.stack([pack_triangle(part.T @ part) for part in by_class])
    return ClassMoments(cases.sum(dim=0), cases.T @ wide, products)


def draw_features(
    moments: ClassMoments, number: int, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Draw features from the Gaussian of every class that has samples.

    Args:
        moments: the sums over all clients.
        number: features of each class.
        rng: the random numbers.

    Returns:
        Features (N, D) in float64 and their classes (N,).
    """
    width = moments.sums.shape[1]
    known = (moments.counts > 0).nonzero().flatten()
    features = []
    for label in known.tolist():
        noise = torch.from_numpy(rng.standard_normal((number, width)))
        mean, covariance = moments.gaussian(label)
        features.append(mean + _shape(noise, covariance))
    drawn = torch.cat(features) if features else moments.sums.new_zeros(0, width)
    return drawn, known.repeat_interleave(number)


def _shape(noise: Tensor, covariance: Tensor) -> Tensor:
    """Give noise of unit variance a covariance."""
    if covariance.ndim == 1:
        return noise * covariance.sqrt()
    mean_variance = float(covariance.trace()) / len(covariance)
    if not mean_variance > 0:
        return torch.zeros_like(noise)
    jitter = JITTER * mean_variance * torch.eye(len(covariance), dtype=covariance.dtype)
    lower: Tensor = torch.linalg.cholesky(covariance + jitter)
    return noise @ lower.T


def ccvr(
    *,
    features: int = VirtualFeatures.features,
    epochs: int = VirtualFeatures.retraining.epochs,
    head_lr: float = VirtualFeatures.retraining.lr,
    diagonal: bool = FeatureMoments.diagonal,
    every: int = FeatureMoments.every,
) -> Method:
    """Classifier trained on features drawn from class Gaussians.

    Args:
        features: virtual features of each class; 0 serves FedAvg's own classifier.
        epochs: epochs over the features.
        head_lr: learning rate of the classifier.
        diagonal: whether the Gaussians have variances only, which takes fewer bytes.
        every: rounds from one classifier to the next; between them FedAvg's own is served.
    """
    retraining = Retraining(epochs, VirtualFeatures.retraining.batch_size, head_lr)
    return Method(
        "CCVR",
        statistics=(FeatureMoments(diagonal, every),),
        server=(VirtualFeatures(features, retraining),),
    )
