"""FedAvg with an optimizer at the server (Reddi et al. 2021)."""

from __future__ import annotations

from fedbb.aggregation.server_optimizers import AdaptiveOptimizer, ServerMomentum
from fedbb.methods.record import Method


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
