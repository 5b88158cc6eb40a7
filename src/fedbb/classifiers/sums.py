"""Sums of embeddings by class, from which a server fits a classifier without seeing a sample."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbb.records import Task


@dataclass(frozen=True, eq=False)
class EmbeddingSums:
    """What the closed-form classifiers need of a set of samples; the sums of two sets add up.

    Multi-class data has one group of cases for each class. Multi-label data has two, the positive
    and the negative cases; unknown labels are in neither. All tensors are float64.

    Args:
        counts: number of cases, (1, C) or (2, C).
        sums: sum of the embeddings of these cases, (1, C, D) or (2, C, D).
        outer: upper triangle, row by row, of Σ (h, 1)(h, 1)ᵀ over all samples: its last column
            holds the sum of all embeddings and the number of samples.
    """

    counts: Tensor
    sums: Tensor
    outer: Tensor

    @property
    def width(self) -> int:
        """The width of the embedding."""
        return self.sums.shape[2]

    @property
    def samples(self) -> float:
        """The number of samples."""
        return float(self.outer[-1])

    def covariance(self) -> Tensor:
        """Return the covariance (D, D) of all embeddings, divided by the number of samples."""
        whole = unpack_triangle(self.outer, self.width + 1) / self.samples
        mean = whole[:-1, -1]
        return whole[:-1, :-1] - torch.outer(mean, mean)

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums by name."""
        return {"counts": self.counts, "sums": self.sums, "outer": self.outer}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> EmbeddingSums:
        """Return the sums that `tensors` named."""
        return cls(tensors["counts"], tensors["sums"], tensors["outer"])


def sum_shapes(classes: int, width: int, task: Task) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the sums by name."""
    kinds = 2 if task is Task.MULTILABEL else 1
    packed = (width + 1) * (width + 2) // 2
    return {"counts": (kinds, classes), "sums": (kinds, classes, width), "outer": (packed,)}


def sum_embeddings(embeddings: Tensor, labels: Tensor, classes: int, task: Task) -> EmbeddingSums:
    """Add up embeddings.

    Args:
        embeddings: (N, D).
        labels: class numbers (N,), or labels (N, C) with NaN for unknown.
        classes: number of classes.
        task: multi-class or multi-label.
    """
    wide = embeddings.double()
    if task is Task.MULTILABEL:
        cases = torch.stack((labels == 1, labels == 0)).double()
    else:
        cases = torch.nn.functional.one_hot(labels.long(), classes).double().unsqueeze(0)
    extended = torch.cat((wide, wide.new_ones(len(wide), 1)), dim=1)
    return EmbeddingSums(
        cases.sum(dim=1), cases.transpose(1, 2) @ wide, pack_triangle(extended.T @ extended)
    )


def add_sums(parts: Iterable[EmbeddingSums]) -> EmbeddingSums:
    """Return the sums over all parts, added in their order."""
    first, *rest = parts
    total = {name: tensor.clone() for name, tensor in first.tensors().items()}
    for part in rest:
        for name, tensor in part.tensors().items():
            total[name] += tensor
    return EmbeddingSums.from_tensors(total)


def case_fault(counts: Tensor, *sums: Tensor) -> str | None:
    """Return why a client's sums by class cannot be; None if they can.

    Args:
        counts: the number of cases of each class.
        sums: what was added up over these cases, with the axes of `counts` first.
    """
    if (counts < 0).any() or not torch.equal(counts, counts.round()):
        return "its class counts are not whole numbers of at least 0"
    if any((part[counts == 0] != 0).any() for part in sums):
        return "it sums embeddings of a class of which it counts none"
    return None


def pack_triangle(matrix: Tensor) -> Tensor:
    """Return the upper triangle of a symmetric matrix, row by row."""
    rows, columns = torch.triu_indices(*matrix.shape)
    return matrix[rows, columns]


def unpack_triangle(packed: Tensor, size: int) -> Tensor:
    """Return the symmetric matrix of an upper triangle."""
    matrix = packed.new_zeros(size, size)
    rows, columns = torch.triu_indices(size, size)
    matrix[rows, columns] = packed
    matrix[columns, rows] = packed
    return matrix
