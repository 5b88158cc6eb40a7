"""ISFL (Zhu et al. 2024): a client draws its samples by class, and shuns unsteady classes.

The shares q of the classes are moved away from those on which the gradients of the trained and the
received model differ most per unit of distance between the models, L_c.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbb.aggregation.label_counts import FederationCounts
from fedbb.aggregation.robust import Uniform
from fedbb.methods.record import Method
from fedbb.models.base import run_network
from fedbb.records import FloatArray, IntArray, Task, Tensors
from fedbb.sampling import SampleView, Sampling, TrainedView
from fedbb.state import restore

FEDERATION = f"{FederationCounts.name}.cases"
"""The cases for and against each class in the federation, (2, C), as the server broadcasts them."""

SHARES = "shares"
"""What a client keeps: with which probability it draws each class, (C,)."""

Mix = Literal["even", "sum"]
Gradients = Literal["all", "head"]


@dataclass(frozen=True)
class ClassSampling(Sampling):
    """Every epoch draws samples with replacement, by class; the shares follow from gradients.

    Args:
        strength: from 0, "draw by the mix", to 1, the published rule: the largest step from the mix
            that leaves every class its floor.
        sigma: the floor of a class, as a fraction of its own share at the client.
        ratio: draws of an epoch as a fraction of the client's samples.
        mix: the shares from which the step starts: "even", "sum" for those of all clients, or one
            share for each class.
        probe: the most samples of the client's own whose gradients are compared in a round.
        gradients: of "all" parameters, one sample at a time, or of the "head" in closed form.

    Raises:
        ValueError: a value is out of range.
    """

    strength: float = 1.0
    sigma: float = 0.02
    ratio: float = 1.0
    mix: Mix | tuple[float, ...] = "even"
    probe: int = 100
    gradients: Gradients = "all"
    keeps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("strength", "sigma"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is from 0 to 1, not {getattr(self, name)}")
        if not 0.0 < self.ratio < float("inf"):
            raise ValueError(f"ratio must be a finite number above 0, not {self.ratio}")
        if self.probe < 1:
            raise ValueError(f"probe must be at least 1, not {self.probe}")
        if self.gradients not in get_args(Gradients):
            raise ValueError(f"gradients must be one of {', '.join(get_args(Gradients))}")
        if isinstance(self.mix, str):
            if self.mix not in get_args(Mix):
                raise ValueError(
                    f'mix is "even", "sum" or a share for each class, not {self.mix!r}'
                )
        elif not all(0.0 < share < float("inf") for share in self.mix):
            raise ValueError("the shares of mix must be finite numbers above 0")

    @property
    def linear_classifier(self) -> bool:
        """Whether gradients of the head are computed in closed form."""
        return self.gradients == "head"

    def supports(self, task: Task) -> bool:
        """Return whether a sample has one class."""
        return task is Task.MULTICLASS

    def check(self, classes: int) -> None:
        """Refuse a mix of another number of classes."""
        if not isinstance(self.mix, str) and len(self.mix) != classes:
            raise ValueError(f"mix has {len(self.mix)} shares for {classes} classes")

    def size(self, samples: int) -> int:
        """Return the number of draws of an epoch."""
        return max(1, int(self.ratio * samples))

    def chances(self, view: SampleView) -> FloatArray:
        """Return the probability of each sample: q(y) divided by the samples of its class."""
        counts = np.bincount(view.labels, minlength=view.classes)
        shares = self._mix(view, counts)
        if SHARES in view.kept:
            shares = view.kept[SHARES].numpy()
        chances = (shares / np.maximum(counts, 1))[view.labels]
        return np.asarray(chances / chances.sum())

    def keep(self, view: SampleView, trained: TrainedView) -> Tensors:
        """Return the shares of the next round, by the gradients of a probe."""
        counts = np.bincount(view.labels, minlength=view.classes)
        mix, own = self._mix(view, counts), counts / counts.sum()
        found = self._steepness(view.labels, view.classes, trained)
        present = counts > 0
        shares = np.zeros(view.classes)
        shares[present] = next_shares(
            mix[present], own[present], found[present], self.sigma, self.strength
        )
        return {SHARES: torch.from_numpy(shares)}

    def _mix(self, view: SampleView, counts: IntArray) -> FloatArray:
        """Return the shares to start from, of the classes that the client has."""
        if self.mix == "even":
            shares = np.ones(view.classes)
        elif self.mix == "sum":
            shares = view.broadcast[FEDERATION][0].double().numpy()
        else:
            shares = np.array(self.mix, dtype=np.float64)
        shares = np.where(counts > 0, shares, 0.0)
        return np.asarray(shares / shares.sum())

    def _steepness(self, labels: IntArray, classes: int, trained: TrainedView) -> FloatArray:
        """Return L of each class: the largest of its samples in the probe; 0 without any."""
        present = np.unique(labels)
        each = max(1, self.probe // len(present))
        positions = [
            trained.rng.permutation(np.flatnonzero(labels == c))[:each] for c in present.tolist()
        ]
        probe = np.concatenate(positions)
        distances = _distances(trained, probe, head=self.gradients == "head")
        found = np.zeros(classes)
        np.maximum.at(found, labels[probe], distances)
        return found


def next_shares(
    mix: FloatArray, own: FloatArray, steepness: FloatArray, sigma: float, strength: float = 1.0
) -> FloatArray:
    """Return the shares q = p + strength·Γ·a of the classes that a client has.

    a is 1 − C·L²/ΣL² at length one, and Γ the largest step that leaves every class its floor:
    sigma times its own share, or its share in the mix if that is smaller.

    Args:
        mix: shares p to start from, (C,).
        own: shares of the client's samples, (C,).
        steepness: L of each class, (C,).
        sigma: the floor as a fraction of the own share.
        strength: from 0 to 1; 1 is the published rule.
    """
    squares = steepness**2
    if not squares.sum() > 0:
        return mix
    toward = 1.0 - len(mix) * squares / squares.sum()
    length = np.linalg.norm(toward)
    # Equal L leave only rounding.
    if length <= 1e-12 * len(mix):
        return mix
    direction = toward / length
    down = direction < 0
    room = mix - np.minimum(sigma * own, mix)
    step = (room[down] / -direction[down]).min()
    moved = np.maximum(mix + strength * step * direction, 0.0)
    return np.asarray(moved / moved.sum())


def _distances(trained: TrainedView, probe: IntArray, *, head: bool) -> FloatArray:
    """Return ‖∇L(θ_k) − ∇L(θ_g)‖ / ‖θ_k − θ_g‖ for each sample; 0 if the models are equal."""
    received = deepcopy(trained.model)
    restore(received, trained.start)
    received.eval()
    apart = _distance(trained.model, received)
    if apart == 0:
        return np.zeros(len(probe))
    if head:
        return head_gradient_distances(trained, received, probe) / apart
    found = []
    for position in probe:
        inputs, target = trained.inputs(np.array([position]))
        one, two = (_gradient(network, inputs, target) for network in (trained.model, received))
        squares = [(a.double() - b.double()).square().sum() for a, b in zip(one, two, strict=True)]
        found.append(float(torch.stack(squares).sum().sqrt()))
    return np.array(found) / apart


def _distance(one: nn.Module, two: nn.Module) -> float:
    pairs = zip(one.parameters(), two.parameters(), strict=True)
    squares = [(a.detach().double() - b.detach().double()).square().sum() for a, b in pairs]
    return float(torch.stack(squares).sum().sqrt())


def _gradient(network: nn.Module, inputs: Tensor, target: Tensor) -> list[Tensor]:
    parameters = [p for p in network.parameters() if p.requires_grad]
    loss = F.cross_entropy(run_network(network, inputs).logits, target)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [
        torch.zeros_like(p) if gradient is None else gradient
        for p, gradient in zip(parameters, found, strict=True)
    ]


def head_gradient_distances(
    trained: TrainedView, received: nn.Module, probe: IntArray
) -> FloatArray:
    """Return the distances of the gradients of the classifier, whose rows are d ⊗ (h, 1)."""
    inputs, targets = trained.inputs(probe)
    parts = []
    for network in (trained.model, received):
        with torch.no_grad():
            outputs = run_network(network, inputs, embed=True)
        assert outputs.embedding is not None
        chances = outputs.logits.double().softmax(dim=1)
        errors = chances - F.one_hot(targets, chances.shape[1])
        parts.append((errors.cpu().numpy(), outputs.embedding.double().cpu().numpy()))
    return head_distance(*parts[0], *parts[1])


def head_distance(d1: FloatArray, h1: FloatArray, d2: FloatArray, h2: FloatArray) -> FloatArray:
    """Return ‖d1 ⊗ (h1, 1) − d2 ⊗ (h2, 1)‖ for each row, without the products."""
    squares = (
        (d1**2).sum(1) * ((h1**2).sum(1) + 1)
        + (d2**2).sum(1) * ((h2**2).sum(1) + 1)
        - 2 * (d1 * d2).sum(1) * ((h1 * h2).sum(1) + 1)
    )
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def isfl(
    *,
    strength: float = ClassSampling.strength,
    sigma: float = ClassSampling.sigma,
    ratio: float = ClassSampling.ratio,
    mix: Mix | Sequence[float] = "even",
    probe: int = ClassSampling.probe,
    gradients: Gradients = ClassSampling.gradients,
) -> Method:
    """Samples drawn by class, fewer of unsteady classes.

    Args:
        strength: 1 is the published rule, 0 draws by the mix.
        sigma: the least share of a class, as a fraction of its own share at the client.
        ratio: draws of an epoch as a fraction of the client's samples.
        mix: "even", "sum" for the label shares of all clients, or a share for each class.
        probe: the most samples of its own whose gradients a client compares in a round.
        gradients: of "all" parameters, as published, or of the "head", which is much cheaper.
    """
    shares = mix if isinstance(mix, str) else tuple(float(share) for share in mix)
    sampling = ClassSampling(strength, sigma, ratio, shares, probe, gradients)
    server = (FederationCounts(),) if mix == "sum" else ()
    return Method("ISFL", weighting=Uniform(), sampling=sampling, server=server)
