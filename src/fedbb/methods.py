"""Every algorithm as one expression of four slots: loss, penalties, weighting, merge.

A slot is filled by a spec, a frozen dataclass of hyper-parameters. A builder takes them flat, as
keyword arguments; these are the `method.options` of a recipe too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fedbb._util.names import nearest
from fedbb._util.plugins import AllowedCode
from fedbb.aggregation.merging import (
    BySamples,
    ClientBalanced,
    Merge,
    Weighting,
    average,
    normalized_average,
)
from fedbb.aggregation.robust import TrimmedMean, Uniform, coordinate_median
from fedbb.errors import RecipeError
from fedbb.imbalance import Reading
from fedbb.losses.base import Loss, LossLike, as_loss, named_loss
from fedbb.losses.class_balanced import ClassBalanced, Form
from fedbb.losses.cross_entropy import CrossEntropy, ScaledCrossEntropy
from fedbb.losses.focal import Focal
from fedbb.losses.logit_calibrated import Calibrated, Calibration, Denominator, LogitCalibrated
from fedbb.losses.pnb import PNB, ClassFactor, Scale
from fedbb.penalties.alignment import Alignment
from fedbb.penalties.base import Needs, Penalty
from fedbb.penalties.contrastive import Contrastive
from fedbb.penalties.proximal import Proximal

__all__ = [
    "METHODS",
    "Alignment",
    "BySamples",
    "ClientBalanced",
    "Contrastive",
    "Method",
    "Proximal",
    "average",
    "build_method",
    "cbr",
    "class_balanced",
    "fedalign",
    "fedavg",
    "fedavg_scaled",
    "fedbb",
    "fedbb_plus",
    "fedbb_printed",
    "fedlc",
    "fednova",
    "fedprox",
    "focal",
    "harmonize",
    "hyper_parameters",
    "moon",
    "normalized_average",
    "pnb",
]

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


def fedavg() -> Method:
    """Plain local training; clients weighted by their size."""
    return Method("FedAvg")


def fedprox(*, mu: float = Proximal.mu) -> Method:
    """FedAvg with a proximal penalty, the distance from the global model.

    Args:
        mu: factor on the penalty.
    """
    return Method("FedProx", penalties=(Proximal(mu),))


def moon(*, mu: float = Contrastive.mu, temperature: float = Contrastive.temperature) -> Method:
    """FedAvg with a contrastive penalty between the global and the previous local model.

    Args:
        mu: factor on the penalty.
        temperature: divides the similarities.
    """
    return Method("MOON", penalties=(Contrastive(mu, temperature),))


def fednova() -> Method:
    """FedAvg with the updates normalized by the number of local steps."""
    return Method("FedNova", merge=normalized_average)


def fedalign(
    *,
    mu: float = Alignment.mu,
    width: float = Alignment.width,
    clip: float | None = Alignment.clip,
) -> Method:
    """FedAvg with the last stage aligned with a narrower copy of itself.

    Args:
        mu: factor on the penalty.
        width: share of the channels that the narrower copy keeps.
        clip: largest norm of the gradient; None for no clipping.
    """
    return Method("FedAlign", penalties=(Alignment(mu, width, clip),))


def fedlc(
    *,
    tau: float = LogitCalibrated.tau,
    denominator: Denominator = LogitCalibrated.denominator,
) -> Method:
    """FedAvg with logits calibrated by the client's class counts; multi-class only.

    Args:
        tau: factor on the margins.
        denominator: "stable", or "paper" for the formula as printed.
    """
    return Method("FedLC", loss=LogitCalibrated(tau, denominator))


def focal(*, gamma: float = Focal.gamma, alpha: float | None = Focal.alpha) -> Method:
    """FedAvg with the focal loss, which gives confident correct predictions less weight.

    Args:
        gamma: exponent of the focal factor.
        alpha: weight of positive cases, for multi-label data only.
    """
    return Method("Focal", loss=Focal(gamma, alpha))


def class_balanced(
    *,
    beta: float = ClassBalanced.beta,
    form: Form = ClassBalanced.form,
    gamma: float = ClassBalanced.gamma,
) -> Method:
    """FedAvg with classes weighted by the inverse of their effective number.

    Args:
        beta: smoothing of the counts, in [0, 1).
        form: "softmax", "sigmoid" or "focal".
        gamma: exponent of the focal factor of the form "focal".
    """
    return Method("CB", loss=ClassBalanced(beta, form, gamma))


def fedavg_scaled(
    *,
    beta: float = PNB.beta,
    tau: float = PNB.tau,
    mu: Scale = PNB.mu,
    class_factor: ClassFactor = PNB.class_factor,
    alpha_min: float = PNB.alpha_min,
) -> Method:
    """FedAvg at the step sizes of PNB: the control that separates re-weighting from a larger rate.

    Args:
        beta: smoothing of the counts, in [0, 1).
        tau: temperature that divides the counts.
        mu: factor on the loss, hence on the learning rate; "unit" makes its mean weight one.
        class_factor: factor between classes, "alpha" or "effective".
        alpha_min: α is kept within [alpha_min, 1 − alpha_min].
    """
    like = PNB(beta, tau, mu, class_factor, alpha_min)
    return Method("FedAvg-scaled", loss=ScaledCrossEntropy(like))


def pnb(
    *,
    beta: float = PNB.beta,
    tau: float = PNB.tau,
    mu: Scale = PNB.mu,
    class_factor: ClassFactor = PNB.class_factor,
    alpha_min: float = PNB.alpha_min,
) -> Method:
    """PNB loss alone; clients weighted by their size.

    Args:
        beta: smoothing of the counts, in [0, 1).
        tau: temperature that divides the counts.
        mu: factor on the loss, hence on the learning rate; "unit" makes its mean weight one.
        class_factor: factor between classes, "alpha" or "effective".
        alpha_min: α is kept within [alpha_min, 1 − alpha_min].
    """
    return Method("PNB", loss=PNB(beta, tau, mu, class_factor, alpha_min))


def cbr(
    *,
    gamma: float = ClientBalanced.gamma,
    reading: Reading = ClientBalanced.reading,
    floor: float = ClientBalanced.floor,
) -> Method:
    """Client Balanced Reweighting alone; plain loss.

    Args:
        gamma: how far the weights follow the balance of the clients, from 0 to 1.
        reading: how the imbalance R of a client is measured.
        floor: least R, which bounds the weight of a balanced client.
    """
    return Method("CBR", weighting=ClientBalanced(gamma, reading, floor))


def fedbb(
    *,
    beta: float = PNB.beta,
    tau: float = PNB.tau,
    mu: Scale = PNB.mu,
    class_factor: ClassFactor = PNB.class_factor,
    alpha_min: float = PNB.alpha_min,
    gamma: float = ClientBalanced.gamma,
    reading: Reading = ClientBalanced.reading,
    floor: float = ClientBalanced.floor,
) -> Method:
    """PNB loss and CBR, with the skew read as the spread of the class shares (Definition 3).

    Args:
        beta: smoothing of the counts, in [0, 1).
        tau: temperature that divides the counts.
        mu: factor on the loss, hence on the learning rate; "unit" makes its mean weight one.
        class_factor: factor between classes, "alpha" or "effective".
        alpha_min: α is kept within [alpha_min, 1 − alpha_min].
        gamma: how far the weights follow the balance of the clients, from 0 to 1.
        reading: how the imbalance R of a client is measured.
        floor: least R, which bounds the weight of a balanced client.
    """
    return Method(
        "FedBB",
        loss=PNB(beta, tau, mu, class_factor, alpha_min),
        weighting=ClientBalanced(gamma, reading, floor),
    )


def fedbb_printed(
    *,
    beta: float = PNB.beta,
    tau: float = PNB.tau,
    mu: Scale = PNB.mu,
    class_factor: ClassFactor = PNB.class_factor,
    alpha_min: float = PNB.alpha_min,
    gamma: float = ClientBalanced.gamma,
) -> Method:
    """PNB loss and CBR by Eq. 10 as printed, which weights all clients equally at γ = 1.

    Args:
        beta: smoothing of the counts, in [0, 1).
        tau: temperature that divides the counts.
        mu: factor on the loss, hence on the learning rate; "unit" makes its mean weight one.
        class_factor: factor between classes, "alpha" or "effective".
        alpha_min: α is kept within [alpha_min, 1 − alpha_min].
        gamma: how far the weights follow the balance, from 0 to 1.
    """
    return Method(
        "FedBB-printed",
        loss=PNB(beta, tau, mu, class_factor, alpha_min),
        weighting=ClientBalanced(gamma, reading="printed"),
    )


def fedbb_plus(
    *,
    beta: float = 0.0,
    tau: float = PNB.tau,
    mu: Scale = "unit",
    class_factor: ClassFactor = PNB.class_factor,
    alpha_min: float = PNB.alpha_min,
    margin: float = Calibration.margin,
    label_margin: float = Calibration.label_margin,
    gamma: float = 0.5,
    reading: Reading = ClientBalanced.reading,
    floor: float = ClientBalanced.floor,
) -> Method:
    """Logits calibrated for absent and rare classes, half of CBR; a β above 0 adds PNB.

    The defaults were chosen on validation data, where PNB on top of calibrated logits lost more
    than it gained.

    Args:
        beta: smoothing of the counts, in [0, 1).
        tau: temperature that divides the counts.
        mu: factor on the loss, hence on the learning rate; "unit" makes its mean weight one.
        class_factor: factor between classes, "alpha" or "effective".
        alpha_min: α is kept within [alpha_min, 1 − alpha_min].
        margin: factor on the margins of multi-class data.
        label_margin: factor on the margins of multi-label data.
        gamma: how far the weights follow the balance of the clients, from 0 to 1.
        reading: how the imbalance R of a client is measured.
        floor: least R, which bounds the weight of a balanced client.
    """
    loss = PNB(beta, tau, mu, class_factor, alpha_min)
    return Method(
        "FedBB-plus",
        loss=Calibrated(loss, Calibration(margin, label_margin)),
        weighting=ClientBalanced(gamma, reading, floor),
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


BASES: dict[str, Callable[..., Method]] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "moon": moon,
    "fednova": fednova,
    "fedalign": fedalign,
}

BALANCING: dict[str, Callable[..., Method]] = {
    "fedlc": fedlc,
    "focal": focal,
    "cb": class_balanced,
    "fedavg-scaled": fedavg_scaled,
    "fedbb": fedbb,
    "fedbb-printed": fedbb_printed,
    "fedbb-plus": fedbb_plus,
    "pnb": pnb,
    "cbr": cbr,
}

METHODS: dict[str, Callable[..., Method]] = {**BASES, **BALANCING}


def build_method(
    name: str,
    options: Mapping[str, Any],
    loss: str | None = None,
    *,
    allow_code: AllowedCode = False,
) -> Method:
    """Return the method of a name with these hyper-parameters.

    Args:
        name: one of `METHODS`, or "base+balancing" for two that are harmonized.
        options: its hyper-parameters by name; of two, a table of them by the name of each.
        loss: the loss that takes the place of the method's own: one that an installed package
            registers as `fedbb.losses`, or "package.module:function".
        allow_code: whether the latter may be imported; otherwise training by the method is refused.

    Raises:
        RecipeError: the name, an option or a value is not allowed.
    """
    method = _build_named(name, options)
    return method if loss is None else replace(method, loss=named_loss(loss, allow_code))


def _build_named(name: str, options: Mapping[str, Any]) -> Method:
    if "+" not in name:
        return _build(name, options, "method.options")
    base, _, balancing = name.partition("+")
    if base not in BASES or balancing not in BALANCING:
        raise RecipeError(
            f"method.name {name!r} is unknown; allowed before the + are {', '.join(BASES)}, "
            f"after it are {', '.join(BALANCING)}"
        )
    for key in options:
        if key not in (base, balancing):
            raise RecipeError(
                f"method.options.{key} is unknown to {name}{nearest(key, (base, balancing))}"
            )
    parts = [
        _build(part, _table(options.get(part, {}), part), f"method.options.{part}")
        for part in (base, balancing)
    ]
    return harmonize(*parts)


def hyper_parameters(name: str) -> dict[str, Any]:
    """Return the hyper-parameters of a method with their default values.

    >>> hyper_parameters("moon")
    {'mu': 1.0, 'temperature': 0.5}
    """
    return dict(METHODS[name].__kwdefaults__ or {})


def _build(name: str, options: Mapping[str, Any], where: str) -> Method:
    if name not in METHODS:
        raise RecipeError(f"method.name {name!r} is unknown{nearest(name, METHODS)}")
    known = hyper_parameters(name)
    if "alpha" in options and "tau" in known:
        # The paper calls τ α in places; everywhere else α is a weight (docs/paper-notes.md, 11).
        raise RecipeError(f"{where}.alpha is an older name in the paper; write tau")
    for option in options:
        if option not in known:
            raise RecipeError(f"{where}.{option} is unknown to {name}{nearest(option, known)}")
    try:
        return METHODS[name](**options)
    except ValueError as error:
        raise RecipeError(f"{where} of {name}: {error}") from error
    except TypeError as error:
        raise RecipeError(
            f"{where} of {name} has a value of the wrong type in {dict(options)}; "
            f"its defaults are {known}"
        ) from error


def _table(options: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(options, Mapping):
        raise RecipeError(f"method.options.{name} must be a table of options, not {options!r}")
    return options
