"""CCVR (Luo et al. 2021): features drawn from a Gaussian for each class, from summed moments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbb.classifiers.sums import pack_triangle, unpack_triangle

JITTER = 1e-6
"""What is added to each variance, as a share of the mean variance, so that Cholesky succeeds."""


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
