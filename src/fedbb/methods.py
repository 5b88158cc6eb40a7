"""Every algorithm as one expression of four slots: loss, penalties, weighting, merge."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

from fedbb._util.names import nearest
from fedbb.aggregation.merging import Merge, average, normalized_average
from fedbb.aggregation.robust import TrimmedMean, Uniform, coordinate_median
from fedbb.aggregation.weighting import BySamples, ClientBalanced, Weighting
from fedbb.errors import RecipeError
from fedbb.losses.base import Loss
from fedbb.losses.class_balanced import ClassBalanced
from fedbb.losses.cross_entropy import CrossEntropy, ScaledCrossEntropy
from fedbb.losses.focal import Focal
from fedbb.losses.logit_calibrated import Calibrated, Calibration, LogitCalibrated
from fedbb.losses.pnb import PNB
from fedbb.penalties.alignment import Alignment
from fedbb.penalties.base import Needs, Penalty
from fedbb.penalties.contrastive import Contrastive
from fedbb.penalties.proximal import Proximal

PLAIN_LOSS = CrossEntropy()
BY_SAMPLES = BySamples()
PAPER_LOSS = PNB()
PAPER_WEIGHTING = ClientBalanced()
PLUS_LOSS = PNB(beta=0.0, mu="unit")
PLUS_CALIBRATION = Calibration()
PLUS_WEIGHTING = ClientBalanced(gamma=0.5)
CALIBRATED = LogitCalibrated()
FOCAL = Focal()
CLASS_BALANCED = ClassBalanced()
PROXIMAL = Proximal()
CONTRASTIVE = Contrastive()
ALIGNMENT = Alignment()


@dataclass(frozen=True)
class Method:
    """An algorithm: how errors are scored, what else pulls, who counts, how models join."""

    name: str
    loss: Loss = PLAIN_LOSS
    penalties: tuple[Penalty, ...] = ()
    weighting: Weighting = BY_SAMPLES
    merge: Merge = average

    @cached_property
    def needs(self) -> Needs:
        """What its penalties ask for together."""
        asked = [penalty.needs for penalty in self.penalties]
        return Needs(
            models=sum(needs.models for needs in asked),
            forwards=sum(needs.forwards for needs in asked),
            tail_width=max((n.tail_width for n in asked if n.tail_width is not None), default=None),
            projection=any(needs.projection for needs in asked),
            client_state=any(needs.client_state for needs in asked),
            clip=min((needs.clip for needs in asked if needs.clip is not None), default=None),
        )


def fedavg() -> Method:
    """Plain local training; clients weighed by their size."""
    return Method("FedAvg")


def fedprox(penalty: Proximal = PROXIMAL) -> Method:
    """FedAvg with a pull towards the global model."""
    return Method("FedProx", penalties=(penalty,))


def moon(penalty: Contrastive = CONTRASTIVE) -> Method:
    """FedAvg with features pulled to the global model's and pushed from the client's last ones."""
    return Method("MOON", penalties=(penalty,))


def fednova() -> Method:
    """FedAvg with every client's change counted per step."""
    return Method("FedNova", merge=normalized_average)


def fedalign(penalty: Alignment = ALIGNMENT) -> Method:
    """FedAvg with a slim last stage that is to act as the whole one."""
    return Method("FedAlign", penalties=(penalty,))


def fedlc(loss: LogitCalibrated = CALIBRATED) -> Method:
    """FedAvg with logits calibrated by the client's class counts; multi-class only."""
    return Method("FedLC", loss=loss)


def focal(loss: Focal = FOCAL) -> Method:
    """FedAvg with the focal loss, which looks away from what is right already."""
    return Method("Focal", loss=loss)


def class_balanced(loss: ClassBalanced = CLASS_BALANCED) -> Method:
    """FedAvg with classes weighed by the inverse of their effective number."""
    return Method("CB", loss=loss)


def fedavg_scaled(like: PNB = PAPER_LOSS) -> Method:
    """FedAvg at the step sizes of PNB: the control that tells re-weighting from a larger rate."""
    return Method("FedAvg-scaled", loss=ScaledCrossEntropy(like))


def pnb(loss: PNB = PAPER_LOSS) -> Method:
    """PNB loss alone; clients weighed by their size."""
    return Method("PNB", loss=loss)


def cbr(weighting: ClientBalanced = PAPER_WEIGHTING) -> Method:
    """Client Balanced Reweighting alone; plain loss."""
    return Method("CBR", weighting=weighting)


def fedbb(loss: PNB = PAPER_LOSS, weighting: ClientBalanced = PAPER_WEIGHTING) -> Method:
    """PNB loss and CBR, skew read as the spread of the class shares (Definition 3)."""
    return Method("FedBB", loss=loss, weighting=weighting)


def fedbb_printed(loss: PNB = PAPER_LOSS, gamma: float = 1.0) -> Method:
    """PNB loss and CBR by Eq. 10 as it is printed, which weighs all clients alike at γ = 1."""
    return Method("FedBB-printed", loss=loss, weighting=ClientBalanced(gamma, reading="printed"))


def fedbb_plus(
    loss: PNB = PLUS_LOSS,
    calibration: Calibration = PLUS_CALIBRATION,
    weighting: ClientBalanced = PLUS_WEIGHTING,
) -> Method:
    """Logits calibrated for absent and rare classes, half of CBR; a β above 0 adds PNB.

    What validation data chose: there PNB on top of calibrated logits cost more than it brought.
    """
    return Method("FedBB-plus", loss=Calibrated(loss, calibration), weighting=weighting)


def harmonize(base: Method, balancing: Method) -> Method:
    """Keep how `base` regularizes and merges; take how `balancing` scores and weighs."""
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


def build_method(name: str, options: Mapping[str, Any]) -> Method:
    """Return the method of this name with these hyper-parameters, flat as a recipe has them.

    "base+balancing" harmonizes two; its options are then tables by the names of the two.
    """
    if "+" not in name:
        return _build(name, options, "method.options")
    base, _, balancing = name.partition("+")
    if base not in BASES or balancing not in BALANCING:
        raise RecipeError(
            f"method.name {name!r} is unknown; before the + goes one of {', '.join(BASES)}, "
            f"after it one of {', '.join(BALANCING)}"
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
    """Return the hyper-parameters of a method with their default values."""
    flat: dict[str, Any] = {}
    for key, default in _parameters(METHODS[name]).items():
        flat |= _fields(default) if is_dataclass(default) else {key: default}
    return flat


def _build(name: str, options: Mapping[str, Any], where: str) -> Method:
    if name not in METHODS:
        raise RecipeError(f"method.name {name!r} is unknown{nearest(name, METHODS)}")
    known = hyper_parameters(name)
    if "alpha" in options and "tau" in known:
        # The paper calls τ α in places; everywhere else α is a weight (docs/paper-notes.md, 11).
        raise RecipeError(f"{where}.alpha is an older name of the paper's; write tau")
    for option in options:
        if option not in known:
            raise RecipeError(f"{where}.{option} is unknown to {name}{nearest(option, known)}")
    try:
        return METHODS[name](**_gather(METHODS[name], options))
    except ValueError as error:
        raise RecipeError(f"{where} of {name}: {error}") from error
    except TypeError as error:
        raise RecipeError(
            f"{where} of {name} has a value of the wrong kind in {dict(options)}; "
            f"its defaults are {known}"
        ) from error


def _table(options: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(options, Mapping):
        raise RecipeError(f"method.options.{name} must be a table of options, not {options!r}")
    return options


def _gather(builder: Callable[..., Method], options: Mapping[str, Any]) -> dict[str, Any]:
    """Sort flat options into the builder's own arguments, the specs among them made anew."""
    arguments: dict[str, Any] = {}
    for key, default in _parameters(builder).items():
        if is_dataclass(default) and not isinstance(default, type):
            changes = {field: options[field] for field in _fields(default) if field in options}
            arguments[key] = replace(default, **changes)
        elif key in options:
            arguments[key] = options[key]
    return arguments


def _parameters(builder: Callable[..., Method]) -> dict[str, Any]:
    parameters = inspect.signature(builder).parameters
    return {key: parameter.default for key, parameter in parameters.items()}


def _fields(spec: Any) -> dict[str, Any]:
    return {field.name: getattr(spec, field.name) for field in fields(spec)}
