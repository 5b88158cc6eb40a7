"""Fed-ROD: a head of the client's own on top of the shared one, never sent (Chen and Chao 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbb.models.base import classifier_parameters, linear_classifier
from fedbb.penalties.base import Anchors, BoundPenalty, Needs, Step

Start = Literal["zeros", "copy"]


@dataclass(frozen=True)
class PersonalHead:
    """The plain loss of personal logits: shared logits plus those of a linear head of the client.

    The personal head is trained on the embedding and the shared logits as they are, so it changes
    nothing of the shared model.

    Args:
        start: what the head begins with: "zeros", or a "copy" of the shared classifier.
    """

    start: Start = "zeros"
    needs: ClassVar[Needs] = Needs(embedding=True, linear_classifier=True, keeps="personal-head")

    def __post_init__(self) -> None:
        if self.start not in get_args(Start):
            raise ValueError(f"start must be one of {', '.join(get_args(Start))}")

    def bind(self, anchors: Anchors) -> BoundPenalty:
        """Return the loss of the personal logits, with the head that the client kept."""
        names = classifier_parameters(linear_classifier(anchors.model))
        shared = [anchors.start.params[name] for name in names]
        if self.start == "zeros":
            shared = [torch.zeros_like(tensor) for tensor in shared]
        parts = dict(zip(("weight", "bias"), shared, strict=True))
        classes, width = parts["weight"].shape
        head = nn.utils.skip_init(nn.Linear, width, classes)
        head.load_state_dict({**parts, **anchors.kept})

        def value(step: Step) -> Tensor:
            assert step.outputs.embedding is not None  # asked for by `needs.embedding`
            assert step.targets is not None
            logits = personal_logits(head, step.outputs.logits, step.outputs.embedding)
            return _plain_loss(logits, step.targets)

        return BoundPenalty(value, head, lambda result: dict(head.state_dict()))


def personal_logits(head: nn.Module, logits: Tensor, embedding: Tensor) -> Tensor:
    """Return the logits of a client: shared ones plus those of its own head, without a gradient."""
    own: Tensor = head(embedding.detach())
    return logits.detach() + own


def _plain_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy, of labels over the known ones."""
    if not targets.is_floating_point():
        return F.cross_entropy(logits, targets.long())
    known = ~targets.isnan()
    if not known.any():
        return logits.sum() * 0.0
    return F.binary_cross_entropy_with_logits(logits[known], targets[known].to(logits))
