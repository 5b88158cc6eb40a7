"""Methods against class imbalance and label skew, beside FedBB."""

from __future__ import annotations

from collections.abc import Sequence

from fedbb.aggregation.label_counts import FederationCounts
from fedbb.aggregation.robust import Uniform
from fedbb.classifiers.ccvr import FeatureMoments, VirtualFeatures
from fedbb.classifiers.creff import FederatedFeatures, HeadGradients
from fedbb.classifiers.retraining import Retraining
from fedbb.losses.importance import ImportanceWeighted, Normalize
from fedbb.losses.logit_adjusted import LogitAdjusted
from fedbb.losses.restricted_softmax import RestrictedSoftmax, Scaling
from fedbb.methods.record import Method
from fedbb.penalties.distillation import Distillation, Teacher
from fedbb.penalties.embedding import Decorrelation
from fedbb.penalties.personal_head import PersonalHead, Start
from fedbb.sampling import VirtualClients

CONTRAST = 0.001
"""CLIP2FL's factor on the contrast, in its authors' code."""


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


def creff(
    *,
    features: int = FederatedFeatures.features,
    steps: int = FederatedFeatures.steps,
    feature_lr: float = FederatedFeatures.lr,
    epochs: int = FederatedFeatures.retraining.epochs,
    head_lr: float = FederatedFeatures.retraining.lr,
    known_only: bool = FederatedFeatures.known_only,
) -> Method:
    """Classifier trained on features that match clients' gradients.

    Args:
        features: features of each class at the server.
        steps: steps of matching in a round.
        feature_lr: learning rate of the matching.
        epochs: epochs over the features for the classifier; 0 serves FedAvg's own.
        head_lr: learning rate of the classifier.
        known_only: whether classes that no client held so far keep FedAvg's classifier.
    """
    retraining = Retraining(epochs, FederatedFeatures.retraining.batch_size, head_lr)
    return Method(
        "CReFF",
        statistics=(HeadGradients(),),
        server=(FederatedFeatures(features, steps, feature_lr, retraining, known_only),),
    )


def ccvr(
    *,
    features: int = VirtualFeatures.features,
    epochs: int = VirtualFeatures.retraining.epochs,
    head_lr: float = VirtualFeatures.retraining.lr,
    diagonal: bool = FeatureMoments.diagonal,
    every: int = FeatureMoments.every,
) -> Method:
    """Classifier trained on features drawn from class Gaussians.

    Args:
        features: virtual features of each class; 0 serves FedAvg's own classifier.
        epochs: epochs over the features.
        head_lr: learning rate of the classifier.
        diagonal: whether the Gaussians have variances only, which takes fewer bytes.
        every: rounds from one classifier to the next; between them FedAvg's own is served.
    """
    retraining = Retraining(epochs, VirtualFeatures.retraining.batch_size, head_lr)
    return Method(
        "CCVR",
        statistics=(FeatureMoments(diagonal, every),),
        server=(VirtualFeatures(features, retraining),),
    )


def clip2fl(
    *,
    teacher: Teacher = Distillation.teacher,
    prototypes: str | Sequence[Sequence[float]] = "",
    alpha: float = Distillation.alpha,
    temperature: float = Distillation.temperature,
    contrast: float | None = None,
    features: int = FederatedFeatures.features,
    steps: int = FederatedFeatures.steps,
    epochs: int = FederatedFeatures.retraining.epochs,
) -> Method:
    """CReFF, and clients learn from the logits of a teacher.

    Args:
        teacher: the .npz file of its logits for the training data, as `fedbb.data.save_teacher`
            writes it. In Python also a network, or a function of a batch as the network gets it.
        prototypes: a teacher file that has `text`, read by the server; in Python also a vector for
            each class, such as CLIP's text embeddings.
        alpha: factor on the distillation.
        temperature: of the distillation.
        contrast: factor on the contrast of features with prototypes; by default 0.001 if there are
            prototypes, and else 0.
        features: features of each class at the server.
        steps: steps of matching in a round.
        epochs: epochs over the features for the classifier.
    """
    retraining = Retraining(
        epochs, FederatedFeatures.retraining.batch_size, FederatedFeatures.retraining.lr
    )
    rows: str | tuple[tuple[float, ...], ...]
    if isinstance(prototypes, str) and prototypes:
        rows = prototypes
    else:
        rows = tuple(tuple(map(float, row)) for row in prototypes)
    if contrast is None:
        contrast = CONTRAST if rows else 0.0
    server = FederatedFeatures(
        features, steps, retraining=retraining, contrast=contrast, prototypes=rows
    )
    return Method(
        "CLIP2FL",
        penalties=(Distillation(teacher, alpha, temperature),),
        statistics=(HeadGradients(),),
        server=(server,),
    )
