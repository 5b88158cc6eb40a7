"""Methods that change how clients train or how models are merged; FedAvg is the plainest."""

from __future__ import annotations

from fedbb.aggregation.merging import normalized_average
from fedbb.methods.record import Method
from fedbb.penalties.alignment import Alignment
from fedbb.penalties.embedding import Contrastive
from fedbb.penalties.proximal import Proximal


def fedavg() -> Method:
    """Plain local training; clients weighted by their size."""
    return Method("FedAvg")


def fedprox(*, mu: float = Proximal.mu) -> Method:
    """FedAvg with a penalty on the distance from the global model.

    Args:
        mu: factor on the penalty.
    """
    return Method("FedProx", penalties=(Proximal(mu),))


def moon(*, mu: float = Contrastive.mu, temperature: float = Contrastive.temperature) -> Method:
    """Contrastive penalty: near the global model, off the last own.

    Args:
        mu: factor on the penalty.
        temperature: divides the similarities.
    """
    return Method("MOON", penalties=(Contrastive(mu, temperature),))


def fednova() -> Method:
    """FedAvg with updates normalized by the number of local steps."""
    return Method("FedNova", merge=normalized_average)


def fedalign(
    *,
    mu: float = Alignment.mu,
    width: float = Alignment.width,
    clip: float | None = Alignment.clip,
) -> Method:
    """The last stage is aligned with a narrower copy of itself.

    Args:
        mu: factor on the penalty.
        width: share of the channels that the narrower copy keeps.
        clip: largest norm of the gradient; None for no clipping.
    """
    return Method("FedAlign", penalties=(Alignment(mu, width, clip),))
