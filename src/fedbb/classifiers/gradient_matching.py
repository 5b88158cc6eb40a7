"""CReFF (Shang et al. 2022): features at the server whose head gradients match the clients'.

All gradients are those of the mean cross-entropy of one class through a linear head, in closed
form, so nothing is differentiated twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedbb.classifiers.head import Head

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
