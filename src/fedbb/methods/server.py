"""Methods whose server does more than average: server optimizers, SCAFFOLD, FedDyn."""

from __future__ import annotations

from fedbb.aggregation.control_variate import ServerControl
from fedbb.aggregation.dynamic import DynamicShift
from fedbb.aggregation.robust import Uniform
from fedbb.aggregation.server_optimizers import AdaptiveOptimizer, ServerMomentum
from fedbb.methods.record import Method
from fedbb.penalties.control_variate import ControlVariate
from fedbb.penalties.dynamic import DynamicRegularizer
from fedbb.statistics.control_change import ControlChange


def fedavgm(*, lr: float = ServerMomentum.lr, momentum: float = ServerMomentum.momentum) -> Method:
    """FedAvg with momentum at the server.

    Args:
        lr: learning rate of the server.
        momentum: share of the last step that is taken again.
    """
    return Method("FedAvgM", server=(ServerMomentum(lr, momentum),))


def fedadam(
    *,
    lr: float = AdaptiveOptimizer.lr,
    beta1: float = AdaptiveOptimizer.beta1,
    beta2: float = AdaptiveOptimizer.beta2,
    tau: float = AdaptiveOptimizer.tau,
) -> Method:
    """FedAvg with Adam at the server.

    Args:
        lr: learning rate of the server.
        beta1: decay of the mean of the changes.
        beta2: decay of the mean of their squares.
        tau: added to the root of the latter.
    """
    return Method("FedAdam", server=(AdaptiveOptimizer("adam", lr, beta1, beta2, tau),))


def fedyogi(
    *,
    lr: float = AdaptiveOptimizer.lr,
    beta1: float = AdaptiveOptimizer.beta1,
    beta2: float = AdaptiveOptimizer.beta2,
    tau: float = AdaptiveOptimizer.tau,
) -> Method:
    """FedAvg with Yogi at the server, a slower Adam.

    Args:
        lr: learning rate of the server.
        beta1: decay of the mean of the changes.
        beta2: one minus the rate at which their squares are followed.
        tau: added to the root of the latter.
    """
    return Method("FedYogi", server=(AdaptiveOptimizer("yogi", lr, beta1, beta2, tau),))


def fedadagrad(
    *,
    lr: float = AdaptiveOptimizer.lr,
    beta1: float = AdaptiveOptimizer.beta1,
    tau: float = AdaptiveOptimizer.tau,
) -> Method:
    """FedAvg with Adagrad at the server.

    Args:
        lr: learning rate of the server.
        beta1: decay of the mean of the changes.
        tau: added to the root of the sum of their squares.
    """
    return Method("FedAdagrad", server=(AdaptiveOptimizer("adagrad", lr, beta1, tau=tau),))


def scaffold(*, lr: float = ServerControl.lr) -> Method:
    """Control variates correct the gradients; SGD only.

    Args:
        lr: learning rate of the server.
    """
    return Method(
        "SCAFFOLD",
        penalties=(ControlVariate(),),
        weighting=Uniform(),
        statistics=(ControlChange(),),
        server=(ServerControl(lr),),
    )


def feddyn(
    *,
    alpha: float = DynamicRegularizer.alpha,
    clip: float | None = DynamicRegularizer.clip,
) -> Method:
    """Dynamic regularization; all clients count alike.

    Args:
        alpha: strength of the penalty.
        clip: largest norm of the gradient; None for no clipping.
    """
    return Method(
        "FedDyn",
        penalties=(DynamicRegularizer(alpha, clip),),
        weighting=Uniform(),
        server=(DynamicShift(alpha),),
    )
