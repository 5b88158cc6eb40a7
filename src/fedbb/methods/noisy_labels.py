"""Methods whose loss tolerates wrong labels, or says how sure a prediction is."""

from __future__ import annotations

from fedbb.losses.evidential import Evidential
from fedbb.losses.symmetric import Symmetric
from fedbb.methods.record import Method


def symmetric(*, alpha: float = Symmetric.alpha, beta: float = Symmetric.beta) -> Method:
    """Symmetric cross-entropy, which wrong labels pull little.

    Args:
        alpha: factor on the cross-entropy.
        beta: factor on the reverse cross-entropy.
    """
    return Method("Symmetric", loss=Symmetric(alpha, beta))


def evidential(*, kl: float = Evidential.kl) -> Method:
    """Evidential loss: logits are evidence; multi-class only.

    Args:
        kl: factor on the evidence for wrong classes.
    """
    return Method("Evidential", loss=Evidential(kl))
