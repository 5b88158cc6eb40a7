"""Evidential loss (Sensoy et al. 2018): logits become evidence for a Dirichlet distribution."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbb.losses.base import Loss
from fedbb.losses.drop_in import IGNORED, DropInLoss, Reduction, class_probabilities, widen
from fedbb.records import LabelCounts, Task


@dataclass(frozen=True)
class Evidential(Loss):
    """Hyper-parameters of the evidential loss; multi-class only.

    Args:
        kl: factor on the divergence of the evidence for wrong classes from none.

    Raises:
        ValueError: a factor below 0.
    """

    kl: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.kl < float("inf"):
            raise ValueError(f"kl must be a finite number of at least 0, not {self.kl}")

    def supports(self, task: Task) -> bool:
        """Support multi-class only: the evidence is divided among the classes of a sample."""
        return task is Task.MULTICLASS

    def bind(self, counts: LabelCounts, task: Task) -> nn.Module:
        """Return the loss, which does not depend on a client's counts."""
        return EvidentialLoss(kl=self.kl)

    def mean_weight(self, counts: LabelCounts, task: Task) -> float:
        """Return the size of its gradient beside that of cross-entropy at even predictions."""
        logits = torch.zeros(1, max(len(counts.positive), 2), dtype=torch.float64)
        slopes = []
        for loss in (EvidentialLoss(kl=self.kl), nn.CrossEntropyLoss()):
            leaf = logits.clone().requires_grad_()
            with torch.enable_grad():
                (slope,) = torch.autograd.grad(loss(leaf, torch.tensor([0])), leaf)
            slopes.append(float(slope.norm()))
        return slopes[0] / slopes[1]


class EvidentialLoss(DropInLoss):
    """Evidential loss on logits, a drop-in for CE; multi-class only.

    The evidence is softplus(z), and α = evidence + 1 are the parameters of a Dirichlet
    distribution: `opinion` returns its mean, the beliefs and the uncertainty.

    >>> loss = EvidentialLoss()
    >>> loss(torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([0])).item()  # doctest: +ELLIPSIS
    0.5896...

    Args:
        kl: factor on the divergence of the evidence for wrong classes from none. The authors raise
            it from 0 to 1 over ten epochs.
        reduction: "mean" divides by the number of known labels.
        label_smoothing: how much of each target is spread over the classes, from 0 to 1.
        ignore_index: marks an unknown label in targets of an integer type.

    Raises:
        ValueError: a value outside of its range.
    """

    def __init__(
        self,
        *,
        kl: float = 1.0,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = IGNORED,
    ) -> None:
        spec = Evidential(kl)
        super().__init__(spec, Task.MULTICLASS, 0, reduction, label_smoothing, ignore_index)
        self.kl = kl

    def entries(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of each sample."""
        logits = widen(logits)
        even = torch.ones((), device=logits.device) / logits.shape[1]
        q = class_probabilities(logits, target, self.ignore_index, self.label_smoothing, even)
        known = ~q.isnan().any(dim=1)
        truth = q.nan_to_num(nan=0.0)
        alpha = F.softplus(logits) + 1
        entries = expected_error(alpha, truth) + self.kl * excess_evidence(alpha, truth)
        return entries * known


def opinion(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return expected probabilities (N, C), beliefs (N, C) and uncertainty (N,) of logits.

    Beliefs and uncertainty of a sample sum to one.

    Args:
        logits: (N, C).
    """
    evidence = F.softplus(widen(logits))
    strength = (evidence + 1).sum(dim=1, keepdim=True)
    uncertainty = logits.shape[1] / strength.squeeze(1)
    return (evidence + 1) / strength, evidence / strength, uncertainty


def expected_error(alpha: Tensor, truth: Tensor) -> Tensor:
    """Return the expected squared error of each sample under Dirichlet(α): error and variance."""
    strength = alpha.sum(dim=1, keepdim=True)
    mean = alpha / strength
    variance = mean * (1 - mean) / (strength + 1)
    return ((truth - mean).square() + variance).sum(dim=1)


def excess_evidence(alpha: Tensor, truth: Tensor) -> Tensor:
    """Return KL(Dir(α̃) ‖ Dir(1)) of each sample, α̃ being α without the true class's evidence."""
    rest = truth + (1 - truth) * alpha
    total = rest.sum(dim=1)
    classes = torch.full_like(total, float(alpha.shape[1]))
    slopes = torch.digamma(rest) - torch.digamma(total).unsqueeze(1)
    spread = ((rest - 1) * slopes).sum(dim=1)
    return torch.lgamma(total) - torch.lgamma(classes) - torch.lgamma(rest).sum(dim=1) + spread
