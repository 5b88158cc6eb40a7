"""Every algorithm as one expression of four slots: loss, penalties, weighting, merge.

A slot is filled by a spec, a frozen dataclass of hyper-parameters. A recipe gives them flat, as
`method.options`: every field of the specs that a builder takes is an option of its method.
"""

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
    """A federated learning algorithm.

    Args:
        name: its name in messages and reports.
        loss: the loss of local training, bound to each client's label counts.
        penalties: terms that local training adds to the loss.
        weighting: the weight of each client in the merge.
        merge: how the models of the clients become the next global model.
    """

    name: str
    loss: Loss = PLAIN_LOSS
    penalties: tuple[Penalty, ...] = ()
    weighting: Weighting = BY_SAMPLES
    merge: Merge = average

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


def fedprox(penalty: Proximal = PROXIMAL) -> Method:
    """FedAvg with a proximal penalty, the distance from the global model.

    Args:
        penalty: the proximal penalty.
    """
    return Method("FedProx", penalties=(penalty,))


def moon(penalty: Contrastive = CONTRASTIVE) -> Method:
    """FedAvg with a contrastive penalty between the global and the previous local model.

    Args:
        penalty: the contrastive penalty.
    """
    return Method("MOON", penalties=(penalty,))


def fednova() -> Method:
    """FedAvg with the updates normalized by the number of local steps."""
    return Method("FedNova", merge=normalized_average)


def fedalign(penalty: Alignment = ALIGNMENT) -> Method:
    """FedAvg with the last stage aligned with a narrower copy of itself.

    Args:
        penalty: the alignment penalty.
    """
    return Method("FedAlign", penalties=(penalty,))


def fedlc(loss: LogitCalibrated = CALIBRATED) -> Method:
    """FedAvg with logits calibrated by the client's class counts; multi-class only.

    Args:
        loss: the calibrated cross-entropy.
    """
    return Method("FedLC", loss=loss)


def focal(loss: Focal = FOCAL) -> Method:
    """FedAvg with the focal loss, which gives confident correct predictions less weight.

    Args:
        loss: the focal loss.
    """
    return Method("Focal", loss=loss)


def class_balanced(loss: ClassBalanced = CLASS_BALANCED) -> Method:
    """FedAvg with classes weighted by the inverse of their effective number.

    Args:
        loss: the class-balanced loss.
    """
    return Method("CB", loss=loss)


def fedavg_scaled(like: PNB = PAPER_LOSS) -> Method:
    """FedAvg at the step sizes of PNB: the control that separates re-weighting from a larger rate.

    Args:
        like: the PNB loss whose mean weight scales the plain loss.
    """
    return Method("FedAvg-scaled", loss=ScaledCrossEntropy(like))


def pnb(loss: PNB = PAPER_LOSS) -> Method:
    """PNB loss alone; clients weighted by their size.

    Args:
        loss: the PNB loss.
    """
    return Method("PNB", loss=loss)


def cbr(weighting: ClientBalanced = PAPER_WEIGHTING) -> Method:
    """Client Balanced Reweighting alone; plain loss.

    Args:
        weighting: the weights by the balance of the clients.
    """
    return Method("CBR", weighting=weighting)


def fedbb(loss: PNB = PAPER_LOSS, weighting: ClientBalanced = PAPER_WEIGHTING) -> Method:
    """PNB loss and CBR, with the skew read as the spread of the class shares (Definition 3).

    Args:
        loss: the PNB loss.
        weighting: the weights by the balance of the clients.
    """
    return Method("FedBB", loss=loss, weighting=weighting)


def fedbb_printed(loss: PNB = PAPER_LOSS, gamma: float = 1.0) -> Method:
    """PNB loss and CBR by Eq. 10 as printed, which weights all clients equally at γ = 1.

    Args:
        loss: the PNB loss.
        gamma: how far the weights follow the balance, from 0 to 1.
    """
    return Method("FedBB-printed", loss=loss, weighting=ClientBalanced(gamma, reading="printed"))


def fedbb_plus(
    loss: PNB = PLUS_LOSS,
    calibration: Calibration = PLUS_CALIBRATION,
    weighting: ClientBalanced = PLUS_WEIGHTING,
) -> Method:
    """Logits calibrated for absent and rare classes, half of CBR; a β above 0 adds PNB.

    The defaults were chosen on validation data, where PNB on top of calibrated logits lost more
    than it gained.

    Args:
        loss: the PNB loss that is applied to the calibrated logits.
        calibration: the calibration of the logits.
        weighting: the weights by the balance of the clients.
    """
    return Method("FedBB-plus", loss=Calibrated(loss, calibration), weighting=weighting)


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


def build_method(name: str, options: Mapping[str, Any]) -> Method:
    """Return the method of a name with these hyper-parameters.

    Args:
        name: one of `METHODS`, or "base+balancing" for two that are harmonized.
        options: its hyper-parameters by name; of two, a table of them by the name of each.

    Raises:
        RecipeError: the name, an option or a value is not allowed.
    """
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
        raise RecipeError(f"{where}.alpha is an older name in the paper; write tau")
    for option in options:
        if option not in known:
            raise RecipeError(f"{where}.{option} is unknown to {name}{nearest(option, known)}")
    try:
        return METHODS[name](**_gather(METHODS[name], options))
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


def _gather(builder: Callable[..., Method], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a builder's arguments: each spec with the options that are fields of it replaced."""
    arguments: dict[str, Any] = {}
    for key, default in _parameters(builder).items():
        if is_dataclass(default) and not isinstance(default, type):
            changes = {field: options[field] for field in _fields(default) if field in options}
            arguments[key] = replace(default, **changes)
        elif key in options:
            arguments[key] = options[key]
    return arguments


def _parameters(builder: Callable[..., Method]) -> dict[str, Any]:
    # The defaults of a builder's arguments are its specs, and so the source of all options.
    parameters = inspect.signature(builder).parameters
    return {key: parameter.default for key, parameter in parameters.items()}


def _fields(spec: Any) -> dict[str, Any]:
    return {field.name: getattr(spec, field.name) for field in fields(spec)}
