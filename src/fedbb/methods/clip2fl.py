"""CLIP2FL (Shi et al. 2024): CReFF, and clients that learn from the logits of a teacher."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedbb.classifiers.retraining import Retraining
from fedbb.methods.creff import FederatedFeatures, HeadGradients
from fedbb.methods.record import Method
from fedbb.models.base import run_network
from fedbb.penalties.base import Anchors, Needs, Step
from fedbb.penalties.proximal import check_strength

Teacher = str | nn.Module | Callable[[Tensor], Tensor]
"""A file of logits, or what takes a batch as the network gets it and returns its logits (N, C)."""

CONTRAST = 0.001
"""The factor on the contrast of features with prototypes, in the authors' code."""


@dataclass(frozen=True)
class TeacherDistillation:
    """α·T² times the divergence of the student's softened shares from the teacher's.

    Args:
        teacher: a file of its logits for the training data, or a network or a function, which are
            not trained.
        alpha: the strength of the penalty.
        temperature: divides the logits of both.
    """

    teacher: Teacher = ""
    alpha: float = 1.0
    temperature: float = 3.0

    def __post_init__(self) -> None:
        check_strength("alpha", self.alpha)
        if not (isinstance(self.teacher, str) or callable(self.teacher)):
            raise TypeError(f"a teacher is a file or a function, not {self.teacher!r}")
        if not 0.0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be a finite number above 0, not {self.temperature}")

    @property
    def needs(self) -> Needs:
        """The logits of a file, or a further network; nothing at strength 0."""
        if self.alpha == 0.0:
            return Needs()
        if isinstance(self.teacher, str):
            return Needs(teacher=self.teacher)
        return Needs(models=1, forwards=1)

    def bind(self, anchors: Anchors) -> Callable[[Step], Tensor]:
        """Return the penalty; a network is copied, and works as in evaluation."""
        logits_of = _teacher_logits(self.teacher)

        def penalty(step: Step) -> Tensor:
            if self.alpha == 0.0:
                return step.outputs.logits.new_zeros(())
            with torch.no_grad():
                wanted = logits_of(step).to(step.outputs.logits)
            return self.alpha * distill(step.outputs.logits, wanted, self.temperature)

        return penalty


def _teacher_logits(teacher: Teacher) -> Callable[[Step], Tensor]:
    if isinstance(teacher, str):
        return _logits_of_data
    of_batch = _frozen(teacher) if isinstance(teacher, nn.Module) else teacher
    return lambda step: of_batch(step.images)


def _logits_of_data(step: Step) -> Tensor:
    assert step.teacher is not None  # a run attaches them to the data
    return step.teacher


def _frozen(teacher: nn.Module) -> Callable[[Tensor], Tensor]:
    network = copy.deepcopy(teacher).eval().requires_grad_(False)
    return lambda images: run_network(network.to(images.device), images).logits


def distill(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return T² times the batch mean of KL(softmax(t/T) ‖ softmax(s/T)) of logits (N, C)."""
    wanted = (teacher / temperature).log_softmax(dim=1)
    found = (student / temperature).log_softmax(dim=1)
    divergence = (wanted.exp() * (wanted - found)).sum(dim=1).mean()
    return temperature**2 * divergence


def clip2fl(
    *,
    teacher: Teacher = TeacherDistillation.teacher,
    prototypes: str | Sequence[Sequence[float]] = "",
    alpha: float = TeacherDistillation.alpha,
    temperature: float = TeacherDistillation.temperature,
    contrast: float | None = None,
    features: int = FederatedFeatures.features,
    steps: int = FederatedFeatures.steps,
    epochs: int = FederatedFeatures.retraining.epochs,
) -> Method:
    """CReFF, and clients learn from the logits of a teacher.

    Args:
        teacher: the .npz file of its logits for the training data, as `fedbb.data.save_teacher`
            writes it. In Python also a network, or a function of a batch as the network gets it.
        prototypes: a teacher file that has `text`, read by the server; in Python also a vector for
            each class, such as CLIP's text embeddings.
        alpha: factor on the distillation.
        temperature: of the distillation.
        contrast: factor on the contrast of features with prototypes; by default 0.001 if there are
            prototypes, and else 0.
        features: features of each class at the server.
        steps: steps of matching in a round.
        epochs: epochs over the features for the classifier.
    """
    retraining = Retraining(
        epochs, FederatedFeatures.retraining.batch_size, FederatedFeatures.retraining.lr
    )
    rows: str | tuple[tuple[float, ...], ...]
    if isinstance(prototypes, str) and prototypes:
        rows = prototypes
    else:
        rows = tuple(tuple(map(float, row)) for row in prototypes)
    if contrast is None:
        contrast = CONTRAST if rows else 0.0
    server = FederatedFeatures(
        features, steps, retraining=retraining, contrast=contrast, prototypes=rows
    )
    return Method(
        "CLIP2FL",
        penalties=(TeacherDistillation(teacher, alpha, temperature),),
        statistics=(HeadGradients(),),
        server=(server,),
    )
