"""CReFF: gradient matching, head gradients of clients, and a classifier from federated features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedbb.aggregation.server_step import Turn
from fedbb.classifiers.head import Head, embed, head_width, place_head
from fedbb.classifiers.retraining import Retraining
from fedbb.classifiers.served import ServedClassifier, served_classifier
from fedbb.data.teacher_file import read_prototypes
from fedbb.methods.record import Method
from fedbb.models.base import classifier_parameters
from fedbb.records import IntArray, ModelFacts, ModelState, RunFacts, Task, Tensors
from fedbb.rng import stream
from fedbb.state import select
from fedbb.statistics import ClientView, Statistic, form

EPSILON = 1e-6
"""Added to a product of norms, as in the authors' code."""


@dataclass(frozen=True, eq=False)
class ClassGradients:
    """Gradients of the mean loss of each class with respect to a head.

    Args:
        weight: (K, C, D), of class k in the first axis.
        bias: (K, C).
    """

    weight: Tensor
    bias: Tensor


def sum_gradients(embeddings: Tensor, labels: Tensor, head: Head) -> ClassGradients:
    """Return the sums, over the samples of each class, of the gradients of the head.

    Args:
        embeddings: (N, D).
        labels: class numbers (N,).
        head: the head.
    """
    wide = embeddings.to(head.weight)
    truth = torch.nn.functional.one_hot(labels.long(), len(head.bias)).to(wide)
    error = head(wide).softmax(dim=1) - truth
    return ClassGradients(
        torch.einsum("nk,nc,nd->kcd", truth, error, wide), torch.einsum("nk,nc->kc", truth, error)
    )


def feature_gradients(features: Tensor, head: Head) -> tuple[ClassGradients, Tensor]:
    """Return the gradients of the head by features (C, M, D) of each class, and softmax − truth."""
    truth = torch.eye(len(features), dtype=features.dtype).unsqueeze(1)
    error = (features @ head.weight.T + head.bias).softmax(dim=2) - truth
    number = features.shape[1]
    weight = torch.einsum("kmc,kmd->kcd", error, features) / number
    return ClassGradients(weight, error.mean(dim=1)), error


def matching_distance(found: ClassGradients, wanted: ClassGradients) -> Tensor:
    """Return, for each class, the sum of 1 − cosine over the rows of the weight, and the bias."""
    rows = 1 - _cosine(found.weight, wanted.weight)
    return rows.sum(dim=1) + 1 - _cosine(found.bias, wanted.bias)


def matching_gradient(features: Tensor, head: Head, wanted: ClassGradients) -> Tensor:
    """Return the gradient (C, M, D) of the summed `matching_distance` by the features.

    With X and x the gradients of the distance by the head gradients, p the softmax of a feature f
    and J = diag(p) − p·pᵀ, it is (Xᵀ(p − e) + Uᵀ·J·(X·f + x)) / M.
    """
    found, error = feature_gradients(features, head)
    by_weight = _cosine_gradient(found.weight, wanted.weight)
    by_bias = _cosine_gradient(found.bias, wanted.bias)
    truth = torch.eye(len(features), dtype=features.dtype).unsqueeze(1)
    shares = error + truth
    inner = torch.einsum("kcd,kmd->kmc", by_weight, features) + by_bias.unsqueeze(1)
    turned = shares * (inner - (shares * inner).sum(dim=2, keepdim=True))
    direct = torch.einsum("kcd,kmc->kmd", by_weight, error)
    return (direct + turned @ head.weight) / features.shape[1]


def prototype_contrast(features: Tensor, prototypes: Tensor, temperature: float) -> Tensor:
    """Return CLIP2FL's contrast of features (C, M, D) with one prototype (C, D) for each class.

    It is the mean over features of the contrastive loss in which every class's prototype stands M
    times, less the feature's own: −s_c + log((M − 1)·e^{s_c} + M·Σ_{c'≠c} e^{s_c'}).
    """
    scores, logits = _contrast_logits(features, prototypes, temperature)
    own = torch.diagonal(scores, dim1=0, dim2=2).T
    return (logits.logsumexp(dim=2) - own).mean()


def contrast_gradient(features: Tensor, prototypes: Tensor, temperature: float) -> Tensor:
    """Return the gradient (C, M, D) of `prototype_contrast` by the features."""
    _, logits = _contrast_logits(features, prototypes, temperature)
    classes, number, _ = features.shape
    pulled = logits.softmax(dim=2) @ prototypes - prototypes.unsqueeze(1)
    return pulled / (classes * number * temperature)


def _contrast_logits(
    features: Tensor, prototypes: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return the similarities (C, M, C), and with the logarithm of how often each one counts."""
    classes, number, _ = features.shape
    if number < 2:
        raise ValueError("the contrast needs at least two features of each class")
    times = torch.full((classes, classes), float(number), dtype=features.dtype)
    times.fill_diagonal_(number - 1)
    scores = features @ prototypes.T / temperature
    return scores, scores + times.log().unsqueeze(1)


def _cosine(one: Tensor, two: Tensor) -> Tensor:
    norms: Tensor = one.norm(dim=-1) * two.norm(dim=-1)
    return (one * two).sum(dim=-1) / (norms + EPSILON)


def _cosine_gradient(one: Tensor, two: Tensor) -> Tensor:
    """Return the gradient of −cosine by the first vector; where that is 0, without its norm."""
    length, other = one.norm(dim=-1, keepdim=True), two.norm(dim=-1, keepdim=True)
    product = length * other + EPSILON
    along = (one * two).sum(dim=-1, keepdim=True) * other / product.square()
    unit = torch.where(length > 0, one / torch.where(length > 0, length, 1.0), 0.0)
    gradient: Tensor = along * unit - two / product
    return gradient


RETRAINING = Retraining(epochs=300, batch_size=32, lr=0.01)
"""The authors' settings."""

TOLERANCE = 1e-4
"""Rounding that is allowed in the gradients of a client."""

LONGEST = 1e4
"""The largest ratio of a row of weight gradients to its bias gradient: the norm of an embedding."""


@dataclass(frozen=True)
class HeadGradients(Statistic):
    """The mean gradient of the re-trained classifier by the client's samples of each class."""

    name: ClassVar[str] = "head-gradients"
    by_class: ClassVar[bool] = True
    linear_classifier: ClassVar[bool] = True

    def shapes(self, model: ModelState, facts: ModelFacts) -> Tensors:
        """Return the shapes of the gradients, zeros for classes that a client does not hold."""
        classes = facts.classes
        width = head_width(model, facts)
        return {
            "weight": form(classes, classes, width),
            "bias": form(classes, classes),
            "held": form(classes),
        }

    def compute(self, view: ClientView) -> Tensors:
        """Return the gradients by the model that the round starts from."""
        sent = select(view.broadcast, f"{FederatedFeatures.name}.")
        head = Head(sent["weight"].double(), sent["bias"].double())
        classes = view.facts.classes
        weight = torch.zeros(classes, *head.weight.shape, dtype=torch.float64)
        bias = torch.zeros(classes, classes, dtype=torch.float64)
        counts = torch.zeros(classes, dtype=torch.float64)
        for inputs, targets in view.batches():
            labels = targets.cpu().long()
            found = sum_gradients(embed(view.model, inputs), labels, head)
            weight += found.weight
            bias += found.bias
            counts += labels.bincount(minlength=classes)
        number = counts.clamp(min=1)
        return {
            "weight": (weight / number.view(-1, 1, 1)).float(),
            "bias": (bias / number.view(-1, 1)).float(),
            "held": (counts > 0).float(),
        }

    def fault(self, values: Tensors) -> str | None:
        """Refuse what no samples give: errors of a softmax sum to zero and are bounded."""
        weight, bias, held = values["weight"], values["bias"], values["held"]
        if not ((held == 0) | (held == 1)).all():
            return "held classes are marked by 0 and 1"
        absent = held == 0
        if (bias[absent] != 0).any() or (weight[absent] != 0).any():
            return "it has a gradient of a class that it does not hold"
        own = bias.diagonal()
        others = bias - torch.diag(own)
        if (
            (bias.sum(dim=1).abs() > TOLERANCE).any()
            or ((own > TOLERANCE) | (own < -1 - TOLERANCE)).any()
            or ((others < -TOLERANCE) | (others > 1 + TOLERANCE)).any()
        ):
            return "its bias gradients are not those of a softmax"
        if (weight.norm(dim=2) > LONGEST * bias.abs() + TOLERANCE).any():
            return "its weight gradients are too long for their bias gradients"
        return None


@dataclass(frozen=True)
class FederatedFeatures(ServedClassifier):
    """Features at the server that are matched to head gradients; a head is trained on them.

    Args:
        features: features of each class.
        steps: steps of matching in a round.
        lr: learning rate of the matching.
        retraining: how the head is trained on the features.
        known_only: whether classes that no client held so far stay out of the training, and keep
            the row of the merged model; the authors train on noise for them.
        contrast: factor on the contrast of the features with the prototypes (CLIP2FL).
        temperature: divides the similarities of the contrast.
        prototypes: one for each class, as a tuple of rows, or the teacher file whose `text` they
            are; needed for a contrast.

    Raises:
        ValueError: a value outside of its range.
    """

    features: int = 100
    steps: int = 100
    lr: float = 0.1
    retraining: Retraining = RETRAINING
    known_only: bool = True
    contrast: float = 0.0
    temperature: float = 0.1
    prototypes: str | tuple[tuple[float, ...], ...] = ()
    name: ClassVar[str] = "creff"

    def __post_init__(self) -> None:
        if self.features < 1 or self.steps < 0:
            raise ValueError(
                "features must be at least 1 and steps at least 0, not "
                f"{self.features} and {self.steps}"
            )
        for name in ("lr", "temperature"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"{name} must be a finite number above 0, not {getattr(self, name)}"
                )
        if not 0.0 <= self.contrast < math.inf:
            raise ValueError(f"contrast must be a finite number of at least 0, not {self.contrast}")
        if self.contrast > 0 and self.features < 2:
            raise ValueError("the contrast needs at least two features of each class")
        if self.contrast > 0 and not self.prototypes:
            raise ValueError(
                "contrast above 0 needs a prototype of each class: set prototypes to a teacher "
                "file that has `text`, or contrast to 0"
            )

    def supports(self, task: Task) -> bool:
        """Support multi-class only: features are of one class each."""
        return task is Task.MULTICLASS

    def check(self, classes: int, width: int | None) -> None:
        """Refuse prototypes that cannot be read or do not fit."""
        if self.contrast > 0:
            assert width is not None  # the statistic needs a linear classifier
            self._prototypes(classes, width)

    def begin(self, first: ModelState, facts: RunFacts, measured: IntArray | None) -> Tensors:
        """Return features from a unit Gaussian, and a fresh head; with a contrast, prototypes."""
        width = head_width(first, facts)
        rng = stream(facts.seed, "creff features")
        drawn = rng.standard_normal((facts.classes, self.features, width))
        head = self._fresh(facts.classes, width, facts.seed, 0)
        kept = {}
        if self.contrast > 0:
            # In the server state, so that a resumed run does not depend on the file.
            kept["prototypes"] = self._prototypes(facts.classes, width)
        return kept | {
            "features": torch.from_numpy(drawn).float(),
            "known": torch.zeros(facts.classes),
            "weight": head.weight,
            "bias": head.bias,
            **super().begin(first, facts, measured),
        }

    def broadcast(self, state: Tensors, number: int) -> Tensors:
        """Return the re-trained head, through which clients take gradients."""
        return {"weight": state["weight"], "bias": state["bias"]}

    def step(self, state: Tensors, turn: Turn) -> tuple[Tensors, ModelState]:
        """Match the features to the clients' gradients, and train a head on them."""
        sums, facts = select(turn.sums, f"{HeadGradients.name}."), turn.facts
        holders = sums["held"]
        present = holders > 0
        number = holders.clamp(min=1)
        wanted = ClassGradients(
            (sums["weight"] / number.view(-1, 1, 1)).float(),
            (sums["bias"] / number.view(-1, 1)).float(),
        )
        features = self._match(state, wanted, present)
        known = torch.maximum(state["known"], present.float())
        kept = {**state, "features": features, "known": known}
        if self.retraining.epochs == 0:
            return kept, turn.merged
        head = self._train(features, known > 0, facts, turn.round)
        kept |= {"weight": head.weight, "bias": head.bias}
        own = turn.merged.params
        rows = (known > 0) | (not self.known_only)
        weight, bias = (own[name] for name in classifier_parameters(str(facts.classifier)))
        served = Head(
            torch.where(rows.unsqueeze(1), head.weight, weight), torch.where(rows, head.bias, bias)
        )
        model = place_head(turn.merged, str(facts.classifier), served)
        return kept | served_classifier(model, facts, True), turn.merged

    def _prototypes(self, classes: int, width: int) -> Tensor:
        given = self.prototypes
        rows = read_prototypes(given, classes) if isinstance(given, str) else given
        return fit_prototypes(rows, classes, width)

    def _match(self, state: Tensors, wanted: ClassGradients, present: Tensor) -> Tensor:
        features = state["features"].clone()
        head = Head(state["weight"], state["bias"])
        prototypes = state.get("prototypes")
        for _ in range(self.steps):
            gradient = matching_gradient(features, head, wanted)
            gradient[~present] = 0.0
            if prototypes is not None:
                pull = contrast_gradient(features, prototypes, self.temperature)
                gradient += self.contrast * pull
            features -= self.lr * gradient
        return features

    def _train(self, features: Tensor, known: Tensor, facts: RunFacts, number: int) -> Head:
        classes, each, width = features.shape
        rows = known | (not self.known_only)
        inputs = features[rows].flatten(0, 1)
        labels = rows.nonzero().flatten().repeat_interleave(each)
        return self.retraining(
            self._fresh(classes, width, facts.seed, number),
            inputs,
            labels,
            lambda epoch: stream(facts.seed, "creff order", number, epoch).permutation(len(labels)),
        )

    @staticmethod
    def _fresh(classes: int, width: int, seed: int, number: int) -> Head:
        """Return a head with torch's default initial weights, from a stream of its own."""
        rng, bound = stream(seed, "creff head", number), 1 / math.sqrt(width)
        weight, bias = (
            torch.from_numpy(rng.uniform(-bound, bound, shape)).float()
            for shape in ((classes, width), (classes,))
        )
        return Head(weight, bias)


def fit_prototypes(prototypes: npt.ArrayLike, classes: int, width: int) -> Tensor:
    """Return unit prototypes of the width of the embedding, with the inner products they had.

    Only inner products with features matter, and features are free to turn, so any isometry will
    do: with the singular values S and left vectors Y of the rows, Y·S, padded by zeros.

    Args:
        prototypes: a row for each class, of any width.
        classes: the number of classes.
        width: the width of the embedding.

    Raises:
        ValueError: there is not one for each class, or there are more classes than dimensions.
    """
    rows = np.asarray(prototypes, dtype=np.float64)
    if rows.ndim != 2 or len(rows) != classes:
        raise ValueError(f"there are {len(rows)} prototypes for {classes} classes")
    if classes > width:
        raise ValueError(
            f"prototypes of {classes} classes need an embedding of at least as many dimensions, "
            f"and it has {width}"
        )
    unit = torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    left, values, _ = torch.linalg.svd(unit, full_matrices=False)
    placed = torch.zeros(classes, width, dtype=torch.float64)
    placed[:, : len(values)] = left * values
    return placed.float()


def creff(
    *,
    features: int = FederatedFeatures.features,
    steps: int = FederatedFeatures.steps,
    feature_lr: float = FederatedFeatures.lr,
    epochs: int = FederatedFeatures.retraining.epochs,
    head_lr: float = FederatedFeatures.retraining.lr,
    known_only: bool = FederatedFeatures.known_only,
) -> Method:
    """Classifier trained on features that match clients' gradients.

    Args:
        features: features of each class at the server.
        steps: steps of matching in a round.
        feature_lr: learning rate of the matching.
        epochs: epochs over the features for the classifier; 0 serves FedAvg's own.
        head_lr: learning rate of the classifier.
        known_only: whether classes that no client held so far keep FedAvg's classifier.
    """
    retraining = Retraining(epochs, FederatedFeatures.retraining.batch_size, head_lr)
    return Method(
        "CReFF",
        statistics=(HeadGradients(),),
        server=(FederatedFeatures(features, steps, feature_lr, retraining, known_only),),
    )
