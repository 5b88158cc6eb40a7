"""Methods that balance classes by the loss, or clients by their weights: FedBB and its rivals."""

from __future__ import annotations

from fedbb.aggregation.merging import ClientBalanced
from fedbb.imbalance import Reading
from fedbb.losses.class_balanced import ClassBalanced, Form
from fedbb.losses.cross_entropy import ScaledCrossEntropy
from fedbb.losses.focal import Focal
from fedbb.losses.logit_calibrated import Calibrated, Calibration, Denominator, LogitCalibrated
from fedbb.losses.pnb import PNB, ClassFactor, Scale
from fedbb.methods.record import Method


def fedlc(
    *,
    tau: float = LogitCalibrated.tau,
    denominator: Denominator = LogitCalibrated.denominator,
) -> Method:
    """Logits calibrated by the class counts; multi-class only.

    Args:
        tau: factor on the margins.
        denominator: "stable", or "paper" for the formula as printed.
    """
    return Method("FedLC", loss=LogitCalibrated(tau, denominator))


def focal(*, gamma: float = Focal.gamma, alpha: float | None = Focal.alpha) -> Method:
    """Focal loss: confident correct predictions count less.

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
    """Classes weighted by the inverse of their effective number.

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
    """Control: FedAvg at the step sizes of PNB, without re-weighting.

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
    """CBR alone: client weights by label balance, plain loss.

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
    """PNB loss and CBR, with R as the spread of the class shares.

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
    """PNB loss and CBR by Eq. 10 as printed: equal client weights.

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
    """Logits calibrated for absent and rare classes, half of CBR.

    A β above 0 adds PNB. The defaults were chosen on validation data, where PNB on top of
    calibrated logits lost more than it gained.

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
