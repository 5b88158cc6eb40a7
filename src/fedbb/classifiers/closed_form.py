"""Classifiers in closed form from class means and one pooled covariance.

Linear discriminant analysis, ridge regression on ±1, and nearest class means. Related systems fit
such heads to frozen pretrained features: FedNCM (Legate et al. 2023) class means, Fed3R (Fanì et
al. 2024) ridge regression, FedCOF (2025) covariances estimated from class means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fedbb.classifiers.head import Head
from fedbb.classifiers.sums import EmbeddingSums
from fedbb.records import Task

Rule = Literal["lda", "ridge", "means"]
Prior = Literal["equal", "federation"]

FAR = 1e4
"""How far below the mean of the others the logit of a class without a sample is."""

MOST_RIDGE = 0.99
"""The largest shrinkage of a ridge regression; at 1 its penalty is infinite."""

LEAST_RESIDUAL = 1e-3
"""The least share of a direction's variance that a label may leave unexplained. It only bounds the
scale of that label's logits; unknown labels can make the estimate too small."""


@dataclass(frozen=True)
class ClosedForm:
    """How a classifier is computed from sums of embeddings.

    Args:
        rule: "lda", linear discriminant analysis with one covariance; "ridge", least squares on
            targets of ±1 with a penalty; "means", the nearest class mean, which is "lda" with a
            spherical covariance.
        prior: "equal" weighs all classes alike, whatever their frequency; "federation" takes the
            frequency of the classes in the sums.
        shrinkage: from 0 to 1, how far the covariance is drawn towards a multiple of the identity;
            "oas" takes the value of Chen et al. (2010), which follows from the covariance and the
            number of samples. Under "ridge" the penalty is s/(1 − s) times the mean variance.

    Raises:
        ValueError: a value outside of its range.
    """

    rule: Rule = "lda"
    prior: Prior = "equal"
    shrinkage: float | Literal["oas"] = "oas"

    def __post_init__(self) -> None:
        for name, allowed in (("rule", get_args(Rule)), ("prior", get_args(Prior))):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}"
                )
        top = MOST_RIDGE if self.rule == "ridge" else 1.0
        if isinstance(self.shrinkage, str):
            if self.shrinkage != "oas":
                raise ValueError(f'shrinkage must be a number or "oas", not {self.shrinkage!r}')
        elif not 0.0 <= self.shrinkage <= top:
            raise ValueError(
                f"shrinkage must be in [0, {top:g}] for rule {self.rule}, not {self.shrinkage}"
            )

    def fit(self, sums: EmbeddingSums, task: Task) -> Head:
        """Return the classifier; classes without a sample never win.

        Their logit is that of the mean over the other classes less 1e4. A label of which only one
        kind of case is known is predicted as that kind. `Head.known` is false for both.
        """
        return self._fit_labels(sums) if task is Task.MULTILABEL else self._fit_classes(sums)

    def _fit_classes(self, sums: EmbeddingSums) -> Head:
        counts, known = sums.counts[0], sums.counts[0] > 0
        if not known.any():
            return Head(torch.zeros_like(sums.sums[0]), torch.zeros_like(counts), known)
        means = sums.sums[0][known] / counts[known].unsqueeze(1)
        shares = counts[known] / counts.sum()
        prior = shares if self.prior == "federation" else torch.full_like(shares, 1 / len(shares))
        within = sums.covariance() - _scatter(means, shares)
        if self.rule == "ridge":
            spread = within + _scatter(means, prior)
            inverse = _inverse(spread, 1.0, self._penalty(*_traces(spread), sums.samples))
            mean = prior @ means
            weight = 2 * prior.unsqueeze(1) * (means - mean) @ inverse
            bias = 2 * prior - 1 - weight @ mean
        else:
            amount, mean_variance = self._shrinkage(*_traces(within), sums.samples)
            inverse = _inverse(within, 1 - amount, amount * mean_variance)
            centre = means.mean(dim=0)
            weight = (means - centre) @ inverse
            bias = -(weight * (means + centre)).sum(dim=1) / 2 + prior.log()
            bias = bias - bias.mean()
        return _with_absent(weight, bias, known)

    def _fit_labels(self, sums: EmbeddingSums) -> Head:
        """Fit each label as two classes whose common covariance is what the label leaves of all.

        The covariance of all samples is factorized once; a label's own differs by one outer
        product of the distance between its two means.
        """
        (positive, negative), known = sums.counts, (sums.counts > 0).all(dim=0)
        both = torch.where(known, sums.counts, 1.0)
        means = sums.sums / both.unsqueeze(2)
        share = both[0] / both.sum(dim=0)
        prior = share if self.prior == "federation" else torch.full_like(share, 0.5)
        explained, wanted = share * (1 - share), prior * (1 - prior)
        total = sums.covariance()
        values, vectors = torch.linalg.eigh(total)
        values = values.clamp(min=0)
        weight, bias = torch.zeros_like(sums.sums[0]), torch.zeros_like(share)
        for label in known.nonzero().flatten().tolist():
            distance = (means[0, label] - means[1, label]) @ vectors
            factor = -explained[label]
            if self.rule == "ridge":
                factor = factor + wanted[label]
            scale, penalty = self._label_penalty(values, distance, factor, sums.samples)
            solved = distance * _reciprocal(scale * values + penalty)
            left = 1 + scale * factor * (solved @ distance)
            direction = vectors @ (solved / left.clamp(min=LEAST_RESIDUAL))
            odds = prior[label]
            if self.rule == "ridge":
                weight[label] = 2 * wanted[label] * direction
                middle = odds * means[0, label] + (1 - odds) * means[1, label]
                bias[label] = 2 * odds - 1 - weight[label] @ middle
            else:
                weight[label] = direction
                middle = (means[0, label] + means[1, label]) / 2
                bias[label] = torch.logit(odds) - direction @ middle
        settled = torch.where(positive > 0, FAR, -FAR) * ((positive > 0) | (negative > 0))
        return Head(weight, torch.where(known, bias, settled), known)

    def _label_penalty(
        self, values: Tensor, distance: Tensor, factor: Tensor, samples: float
    ) -> tuple[float, float]:
        """Return the factor on the covariance of all samples, and what is added to its diagonal."""
        squared = distance.square()
        trace = float(values.sum() + factor * squared.sum())
        square = float(
            values.square().sum()
            + 2 * factor * (squared @ values)
            + (factor * squared.sum()).square()
        )
        if self.rule == "ridge":
            return 1.0, self._penalty(trace, square, len(values), samples)
        amount, mean_variance = self._shrinkage(trace, square, len(values), samples)
        return 1 - amount, amount * mean_variance

    def _shrinkage(
        self, trace: float, square: float, width: int, samples: float
    ) -> tuple[float, float]:
        """Return the shrinkage of a covariance, and its mean variance."""
        mean_variance = max(trace, 0.0) / width
        if self.rule == "means":
            return 1.0, mean_variance
        if isinstance(self.shrinkage, str):
            return oas_shrinkage(trace, square, width, samples), mean_variance
        return self.shrinkage, mean_variance

    def _penalty(self, trace: float, square: float, width: int, samples: float) -> float:
        amount, mean_variance = self._shrinkage(trace, square, width, samples)
        amount = min(amount, MOST_RIDGE)
        return amount / (1 - amount) * mean_variance


LDA = ClosedForm()
"""Linear discriminant analysis with equal priors."""


def oas_shrinkage(trace: float, square: float, width: int, samples: float) -> float:
    """Return the oracle approximating shrinkage of Chen et al. (2010) from sums alone.

    It supposes Gaussian data. The rule of Ledoit and Wolf would need fourth moments as well.

    >>> round(oas_shrinkage(trace=3.0, square=5.0, width=2, samples=99), 4)
    0.28

    Args:
        trace: trace of the covariance.
        square: trace of its square.
        width: its number of rows.
        samples: number of samples behind it.
    """
    mean_square, squared_mean = square / width**2, (trace / width) ** 2
    slack = (samples + 1) * (mean_square - squared_mean / width)
    return min((mean_square + squared_mean) / slack, 1.0) if slack > 0 else 1.0


def _scatter(means: Tensor, shares: Tensor) -> Tensor:
    """Return the covariance of class means of these shares."""
    apart = means - shares @ means
    return apart.T @ (shares.unsqueeze(1) * apart)


def _traces(matrix: Tensor) -> tuple[float, float, int]:
    """Return the trace of a covariance, that of its square, and its number of rows."""
    return float(matrix.trace()), float(matrix.square().sum()), len(matrix)


def _inverse(matrix: Tensor, scale: float, penalty: float) -> Tensor:
    """Return the inverse of scale·M + penalty·I; directions without variance are left out."""
    values, vectors = torch.linalg.eigh(matrix)
    inverse: Tensor = (vectors * _reciprocal(scale * values.clamp(min=0) + penalty)) @ vectors.T
    return inverse


def _reciprocal(values: Tensor) -> Tensor:
    """Return 1/x of eigenvalues, 0 for those that are zero up to rounding."""
    least = values.max() * len(values) * torch.finfo(values.dtype).eps
    return torch.where(values > least, 1 / values.clamp(min=1e-300), 0.0)


def _with_absent(weight: Tensor, bias: Tensor, known: Tensor) -> Head:
    """Return the head of all classes, given the rows of those that have samples."""
    whole = weight.mean(dim=0).expand(len(known), -1).clone()
    whole[known] = weight
    biases = (bias.mean() - FAR).expand(len(known)).clone()
    biases[known] = bias
    return Head(whole, biases, known)
