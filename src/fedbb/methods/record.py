"""A federated learning algorithm as a value made of parts, and how two of them combine.

A part is a spec, a frozen dataclass of hyper-parameters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fedbb.aggregation.merging import BySamples, Merge, Weighting, average
from fedbb.aggregation.robust import TrimmedMean, Uniform, coordinate_median
from fedbb.aggregation.server_step import ServerStep
from fedbb.compression import COMPRESSION, Compression
from fedbb.distillation import DISTILLATION, Distillation
from fedbb.errors import RecipeError
from fedbb.losses.base import Loss, LossLike, as_loss
from fedbb.losses.cross_entropy import CrossEntropy
from fedbb.penalties.base import Needs, Penalty
from fedbb.personal import PERSONAL, Personal
from fedbb.records import Task, Visibility
from fedbb.sampling import ALL_SAMPLES, SAMPLING, Sampling
from fedbb.statistics import Statistic

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
        sampling: how clients are chosen, and which of its samples a client trains on.
        personal: what of the model, or which second model, stays with each client.
        distillation: how the server or the clients learn from outputs on public inputs.
        statistics: what clients compute and send beside their updates.
        server: what the server keeps, broadcasts and does beside weighting and merging.
        compression: what of a change leaves the client, and in which form.
    """

    name: str
    loss: Loss
    penalties: tuple[Penalty, ...]
    weighting: Weighting
    merge: Merge
    sampling: Sampling
    personal: Personal | None
    distillation: Distillation | None
    statistics: tuple[Statistic, ...]
    server: tuple[ServerStep, ...]
    compression: Compression | None

    def __init__(
        self,
        name: str,
        loss: LossLike = PLAIN_LOSS,
        penalties: tuple[Penalty, ...] = (),
        weighting: Weighting = BY_SAMPLES,
        merge: Merge = average,
        sampling: Sampling = ALL_SAMPLES,
        personal: Personal | None = None,
        distillation: Distillation | None = None,
        statistics: tuple[Statistic, ...] = (),
        server: tuple[ServerStep, ...] = (),
        compression: Compression | None = None,
    ) -> None:
        """Fill the slots.

        Args:
            name: its name in messages and reports.
            loss: an `nn.Module` called with logits and targets, a function that makes one of a
                client's `LabelCounts`, or a spec such as `fedbb.losses.PNB`.
            penalties: terms that local training adds to the loss.
            weighting: the weight of each client in the merge.
            merge: how the models of the clients become the next global model.
            sampling: how clients are chosen, and which of its samples a client trains on.
            personal: what of the model, or which second model, stays with each client; None for
                nothing.
            distillation: how the server or the clients learn from outputs on public inputs; None
                for not at all.
            statistics: what clients compute and send beside their updates.
            server: what the server keeps, broadcasts and does, in this order.
            compression: what of a change leaves the client; None for all of it.

        Raises:
            RecipeError: the loss is none of these, two parts have one name, or a part needs the
                merged model and the personal part leaves it incomplete.
        """
        slots = {
            "name": name,
            "loss": as_loss(loss),
            "penalties": tuple(penalties),
            "weighting": weighting,
            "merge": merge,
            "sampling": sampling,
            "personal": personal,
            "distillation": distillation,
            "statistics": tuple(statistics),
            "server": tuple(server),
            "compression": compression,
        }
        for slot, part in slots.items():
            object.__setattr__(self, slot, part)  # the record is frozen
        _check_names(name, [(part.name, part) for part in self.statistics])
        _check_names(name, [(part.name, part) for part in self.server])
        keeping: list[tuple[str, object]]
        keeping = [(part.needs.keeps, part) for part in self.penalties if part.needs.keeps]
        if compression is not None and compression.keeps:
            keeping.append((COMPRESSION, compression))
        _check_names(name, keeping)
        _check_personal(self)

    @cached_property
    def needs(self) -> Needs:
        """What its penalties and its merge need together."""
        parts = [penalty.needs for penalty in self.penalties]
        return Needs(
            models=sum(needs.models for needs in parts),
            forwards=sum(needs.forwards for needs in parts),
            tail_width=max((n.tail_width for n in parts if n.tail_width is not None), default=None),
            projection=any(needs.projection for needs in parts),
            embedding=any(needs.projection or needs.embedding for needs in parts),
            linear_classifier=any(needs.linear_classifier for needs in parts)
            or any(statistic.linear_classifier for statistic in self.statistics)
            or self.sampling.linear_classifier,
            client_state=any(needs.client_state for needs in parts),
            keeps=", ".join(self._kept_names),
            clip=min((needs.clip for needs in parts if needs.clip is not None), default=None),
            sgd=any(n.sgd for n in parts) or getattr(self.merge, "needs_sgd", False),
            teacher=next((n.teacher for n in parts if n.teacher is not None), None),
        )

    @property
    def _kept_names(self) -> list[str]:
        """The names under which a client keeps tensors."""
        names = [penalty.needs.keeps for penalty in self.penalties if penalty.needs.keeps]
        if self.compression is not None and self.compression.keeps:
            names.append(COMPRESSION)
        if self.distillation is not None and self.distillation.keeps:
            names.append(DISTILLATION.removesuffix("."))
        names += [] if self.personal is None else [PERSONAL.removesuffix(".")]
        return [*names, SAMPLING.removesuffix(".")] if self.sampling.keeps else names

    @property
    def shares_model(self) -> bool:
        """Whether the merged model can be used as it is; if not, clients have models."""
        return not self.unshared

    @property
    def unshared(self) -> str:
        """What of the model every client has for itself, if the merged model lacks it; or ""."""
        personal = self.personal
        if personal is not None and not personal.shares_model:
            return personal.title
        return "" if all(step.shares_model for step in self.server) else "a model of its own"

    @property
    def exchanged(self) -> str:
        """The part that needs models of one form, or "" if clients' networks may differ."""
        if self.personal is None or not self.personal.keeps_all:
            return "the merge of models"
        if self.merge is not average:
            return getattr(self.merge, "__name__", type(self.merge).__name__)
        compression = () if self.compression is None else (self.compression,)
        steps = [
            step
            for step in self.server
            if step.sees_updates or type(step).start is not ServerStep.start
        ]
        return next((type(part).__name__ for part in (*compression, *steps)), "")

    def supports(self, task: Task) -> bool:
        """Return whether the method is defined for this task."""
        parts: tuple[Loss | Sampling | ServerStep, ...] = (self.loss, self.sampling, *self.server)
        return all(part.supports(task) for part in parts)

    def needs_to_see(self, more_than: Visibility) -> str | None:
        """Name a part for which the server must see more than this of the clients, if there is one.

        The weighting and the merge are not looked at: secure aggregation has rules of its own for
        them.
        """
        parts: tuple[Sampling | Statistic | ServerStep, ...]
        parts = (self.sampling, *self.statistics, *self.server)
        return next((type(part).__name__ for part in parts if part.visibility > more_than), None)


def _check_names(method: str, parts: Sequence[tuple[str, object]]) -> None:
    """Refuse two parts of one name: what they keep and send could not be distinguished."""
    for name, _ in parts:
        if not re.fullmatch("[a-z][a-z0-9-]*", name):
            raise RecipeError(
                f"{method}: a part is named {name!r}; allowed: small letters, digits and hyphens"
            )
        kinds = [type(part).__name__ for other, part in parts if other == name]
        if len(kinds) > 1:
            raise RecipeError(f"{method}: {' and '.join(kinds)} are both named {name!r}")


def _check_personal(method: Method) -> None:
    """Refuse what is computed from the merged model where clients keep a part of it."""
    compression, personal = method.compression, method.personal
    lost = compression is not None and not compression.sends_buffers
    if lost and (personal is None or not personal.keeps_buffers):
        raise RecipeError(
            f"{method.name}: {type(compression).__name__} sends no buffers, and nothing keeps "
            'them: personal=KeptEntries("buffers") leaves them with the clients'
        )
    if method.shares_model:
        return
    if personal is not None and compression is not None and not compression.leaves_unchanged:
        raise RecipeError(
            f"{method.name}: {type(compression).__name__} would move the part of the model "
            f"that {type(personal).__name__} leaves with the clients; compress tensor by "
            'tensor (scope = "tensor")'
        )
    parts = [s for s in method.statistics if s.moment == "merged"]
    steps = [s for s in method.server if s.sets_classifier]
    for part in (*parts, *steps):
        raise RecipeError(
            f"{method.name}: {type(part).__name__} works on the merged model, of which every "
            f"client has {method.unshared} for itself"
        )


def harmonize(base: Method, balancing: Method) -> Method:
    """Return `base` with the loss of `balancing`, and with its weighting if it has one of its own.

    A weighting by the number of samples, and a sampling of all clients and samples alike, are those
    of FedAvg: there the other method's stays. Statistics and server steps are those of both, equal
    ones once.

    Args:
        base: its penalties and its merge are kept.
        balancing: its loss and its weighting are taken.

    Raises:
        RecipeError: `balancing` has penalties, a merge, a personal part, a distillation or a
            compression, which would be lost; `base` weighs models itself; both have a sampling of
            their own; or two parts that differ have one name.
    """
    name = f"{base.name}+{balancing.name}"
    losses = {
        "personal part": balancing.personal is not None,
        "distillation": balancing.distillation is not None,
        "penalties": bool(balancing.penalties),
        "merge": balancing.merge is not average,
        "compression": balancing.compression is not None,
    }
    lost = next((part for part, is_there in losses.items() if is_there), None)
    if lost is not None:
        raise RecipeError(
            f"{name} would lose the {lost} of {balancing.name}: of the second method the loss, the "
            "weighting, the statistics and the server steps are taken; name it first"
        )
    weighs = any(step.sets_weights or not step.shares_model for step in base.server)
    if weighs and balancing.weighting != BY_SAMPLES:
        raise RecipeError(
            f"{name} would lose the weighting of {balancing.name}: {base.name} weighs the "
            "models of clients by itself"
        )
    samplings = [m.sampling for m in (base, balancing) if m.sampling != ALL_SAMPLES]
    if len(set(samplings)) > 1:
        kinds = " and ".join(type(sampling).__name__ for sampling in samplings)
        raise RecipeError(f"{name} would sample clients in two ways, {kinds}")
    return replace(
        base,
        name=name,
        loss=balancing.loss,
        weighting=base.weighting if balancing.weighting == BY_SAMPLES else balancing.weighting,
        sampling=samplings[0] if samplings else ALL_SAMPLES,
        statistics=tuple(dict.fromkeys((*base.statistics, *balancing.statistics))),
        server=tuple(dict.fromkeys((*base.server, *balancing.server))),
    )


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
    if method.merge is not average or any(step.sets_weights for step in method.server):
        raise RecipeError(
            f'defense.rule = "{rule}" replaces the average of models, and {method.name} merges '
            'them in another way; "clip", "krum" and "multi-krum" keep the merge of the method'
        )
    if rule == "median":
        return replace(method, merge=coordinate_median, weighting=Uniform())
    return replace(method, merge=TrimmedMean(byzantine))
