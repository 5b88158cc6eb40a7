"""A federated learning algorithm as a value made of parts, and how two of them combine.

A part is a spec, a frozen dataclass of hyper-parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from fedbb.aggregation.merging import BySamples, Merge, Weighting, average
from fedbb.aggregation.robust import TrimmedMean, Uniform, coordinate_median
from fedbb.errors import RecipeError
from fedbb.losses.base import Loss, LossLike, as_loss
from fedbb.losses.cross_entropy import CrossEntropy
from fedbb.penalties.base import Needs, Penalty

PLAIN_LOSS = CrossEntropy()
BY_SAMPLES = BySamples()


@dataclass(frozen=True, init=False)
class Method:
    """A federated learning algorithm.

    Attributes:
        name: its name in messages and reports.
        loss: the loss of local training, bound to each client's label counts.
        penalties: terms that local training adds to the loss.
        weighting: the weight of each client in the merge.
        merge: how the models of the clients become the next global model.
    """

    name: str
    loss: Loss
    penalties: tuple[Penalty, ...]
    weighting: Weighting
    merge: Merge

    def __init__(
        self,
        name: str,
        loss: LossLike = PLAIN_LOSS,
        penalties: tuple[Penalty, ...] = (),
        weighting: Weighting = BY_SAMPLES,
        merge: Merge = average,
    ) -> None:
        """Fill the slots.

        Args:
            name: its name in messages and reports.
            loss: an `nn.Module` called with logits and targets, a function that makes one of a
                client's `LabelCounts`, or a spec such as `fedbb.losses.PNB`.
            penalties: terms that local training adds to the loss.
            weighting: the weight of each client in the merge.
            merge: how the models of the clients become the next global model.

        Raises:
            RecipeError: the loss is none of these.
        """
        slots = {
            "name": name,
            "loss": as_loss(loss),
            "penalties": tuple(penalties),
            "weighting": weighting,
            "merge": merge,
        }
        for slot, part in slots.items():
            object.__setattr__(self, slot, part)  # the record is frozen

    @cached_property
    def needs(self) -> Needs:
        """What its penalties and its merge need together."""
        parts = [penalty.needs for penalty in self.penalties]
        return Needs(
            models=sum(needs.models for needs in parts),
            forwards=sum(needs.forwards for needs in parts),
            tail_width=max((n.tail_width for n in parts if n.tail_width is not None), default=None),
            projection=any(needs.projection for needs in parts),
            client_state=any(needs.client_state for needs in parts),
            clip=min((needs.clip for needs in parts if needs.clip is not None), default=None),
            sgd=any(n.sgd for n in parts) or getattr(self.merge, "needs_sgd", False),
        )


def harmonize(base: Method, balancing: Method) -> Method:
    """Return `base` with the loss and the weighting of `balancing`.

    Args:
        base: its penalties and its merge are kept.
        balancing: its loss and its weighting are taken.
    """
    name = f"{base.name}+{balancing.name}"
    return replace(base, name=name, loss=balancing.loss, weighting=balancing.weighting)


def with_robust_merge(method: Method, rule: str | None, byzantine: int) -> Method:
    """Return the method with a Byzantine-robust merge, if the rule is one that merges.

    Args:
        method: A method that averages models.
        rule: "median" or "trimmed-mean"; any other rule leaves the merge as it is.
        byzantine: Malicious clients in a round that the rule tolerates.

    Raises:
        RecipeError: The method has a merge of its own, which the rule would replace.
    """
    if rule not in ("median", "trimmed-mean"):
        return method
    if method.merge is not average:
        raise RecipeError(
            f'defense.rule = "{rule}" replaces the average of models, and {method.name} merges '
            'them in another way; "clip", "krum" and "multi-krum" keep the merge of the method'
        )
    if rule == "median":
        return replace(method, merge=coordinate_median, weighting=Uniform())
    return replace(method, merge=TrimmedMean(byzantine))
