"""Methods against class imbalance and label skew, beside FedBB."""

from __future__ import annotations

from fedbb.aggregation.label_counts import FederationCounts
from fedbb.aggregation.robust import Uniform
from fedbb.losses.importance import ImportanceWeighted, Normalize
from fedbb.losses.logit_adjusted import LogitAdjusted
from fedbb.losses.restricted_softmax import RestrictedSoftmax, Scaling
from fedbb.methods.record import Method
from fedbb.penalties.embedding import Decorrelation
from fedbb.penalties.personal_head import PersonalHead, Start
from fedbb.sampling import VirtualClients


def bsm(*, tau: float = LogitAdjusted.tau) -> Method:
    """Balanced softmax: logits plus the log of the class counts.

    Args:
        tau: factor on the logarithm.
    """
    return Method("BSM", loss=LogitAdjusted(tau))


def fedrs(
    *, alpha: float = RestrictedSoftmax.alpha, scaling: Scaling = RestrictedSoftmax.scaling
) -> Method:
    """Logits of absent classes are scaled down; multi-class only.

    Args:
        alpha: factor on the logit of an absent class, from 0 to 1.
        scaling: "absent" scales absent classes only, "counts" all of them by their counts.
    """
    return Method("FedRS", loss=RestrictedSoftmax(alpha, scaling))


def fedir(
    *,
    normalize: Normalize = ImportanceWeighted.normalize,
    most: float = ImportanceWeighted.most,
) -> Method:
    """Samples weighted by global over local share of their class.

    Args:
        normalize: where the mean weight is one: in every "batch", or over the "client"'s samples.
        most: the largest weight.
    """
    return Method("FedIR", loss=ImportanceWeighted(normalize, most), server=(FederationCounts(),))


def fedvc(*, size: int = VirtualClients.number) -> Method:
    """Clients chosen by size; each trains on equally many samples.

    Args:
        size: samples of a client in a round, drawn anew; with replacement where it has fewer.
    """
    return Method("FedVC", weighting=Uniform(), sampling=VirtualClients(size))


def feddecorr(*, beta: float = Decorrelation.beta) -> Method:
    """Penalty on correlations between dimensions of the embedding.

    Args:
        beta: factor on the penalty.
    """
    return Method("FedDecorr", penalties=(Decorrelation(beta),))


def fed_rod(*, tau: float = LogitAdjusted.tau, start: Start = PersonalHead.start) -> Method:
    """Balanced softmax, and a personal head kept by each client.

    Args:
        tau: factor on the logarithm of the client's class counts.
        start: the personal head begins with "zeros", or as a "copy" of the shared classifier.
    """
    return Method("Fed-ROD", loss=LogitAdjusted(tau), penalties=(PersonalHead(start),))
