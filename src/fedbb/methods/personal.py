"""Methods whose clients keep a part of the model, or a model of their own."""

from __future__ import annotations

from fedbb.methods.record import Method
from fedbb.personal import KeptEntries, OwnLoss, OwnModel, Part


def local() -> Method:
    """Every client trains by itself and shares nothing."""
    return Method("Local", personal=KeptEntries("all"))


def fedper() -> Method:
    """The classifier stays with the client; the rest is shared."""
    return Method("FedPer", personal=KeptEntries("head"))


def fedrep(*, head_epochs: int = 1) -> Method:
    """As FedPer; the classifier is trained first, then the rest.

    Args:
        head_epochs: epochs of the classifier in a round; the rest has those of the settings.
    """
    return Method("FedRep", personal=KeptEntries("head", head_epochs))


def fedbn(*, norms: Part = "batch-norms") -> Method:
    """Batch normalization stays with the client; the rest is shared.

    Args:
        norms: "batch-norms" for batch and instance normalization, as published; "norms" for group,
            layer and RMS normalization too.

    Raises:
        ValueError: `norms` is neither.
    """
    if norms not in ("batch-norms", "norms"):
        raise ValueError(f'norms is "batch-norms" or "norms", not {norms!r}')
    return Method("FedBN", personal=KeptEntries(norms))


def ditto(
    *,
    lam: float = OwnModel.lam,
    own_epochs: int | None = OwnModel.own_epochs,
    own_loss: OwnLoss = OwnModel.own_loss,
) -> Method:
    """FedAvg, and each client has a model pulled towards the shared.

    Args:
        lam: strength of the pull; at 0 the own model is trained by its client alone.
        own_epochs: epochs of the own model in a round; None for those of the settings.
        own_loss: "plain" cross-entropy, or the loss of the "method".
    """
    return Method("Ditto", personal=OwnModel(lam, own_epochs, own_loss))
