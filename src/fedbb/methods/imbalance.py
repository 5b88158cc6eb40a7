"""Methods against class imbalance and label skew, beside FedBB."""

from __future__ import annotations

from collections.abc import Sequence

from fedbb.aggregation.label_counts import FederationCounts
from fedbb.aggregation.loss_balance import LossBalance
from fedbb.aggregation.robust import Uniform
from fedbb.classifiers.ccvr import FeatureMoments, VirtualFeatures
from fedbb.classifiers.creff import FederatedFeatures, HeadGradients
from fedbb.classifiers.retraining import Retraining
from fedbb.losses.importance import ImportanceWeighted, Normalize
from fedbb.losses.logit_adjusted import LogitAdjusted
from fedbb.losses.restricted_softmax import RestrictedSoftmax, Scaling
from fedbb.methods.record import Method
from fedbb.penalties.decorrelation import Decorrelation
from fedbb.penalties.distillation import Distillation, Teacher
from fedbb.penalties.personal_head import PersonalHead, Start
from fedbb.sampling import VirtualClients
from fedbb.statistics.start_loss import StartLoss


def bsm(*, tau: float = LogitAdjusted.tau) -> Method:
    """FedAvg with the balanced softmax: logits plus the logarithm of the client's class counts.

    Args:
        tau: factor on the logarithm.
    """
    return Method("BSM", loss=LogitAdjusted(tau))


def fedrs(
    *, alpha: float = RestrictedSoftmax.alpha, scaling: Scaling = RestrictedSoftmax.scaling
) -> Method:
    """FedAvg with logits of absent classes scaled down in the softmax; multi-class only.

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
    """FedAvg with samples weighted by the federation's share of their class over the client's.

    Args:
        normalize: "client" makes the mean weight of a client's samples one, "batch" that of a
            batch.
        most: the largest weight.
    """
    return Method("FedIR", loss=ImportanceWeighted(normalize, most), server=(FederationCounts(),))


def fedvc(*, size: int = VirtualClients.number) -> Method:
    """Virtual clients: every chosen client trains on as many samples, and is chosen by its size.

    Args:
        size: samples of a client in a round, drawn anew; with replacement where it has fewer.
    """
    return Method("FedVC", weighting=Uniform(), sampling=VirtualClients(size))


def feddecorr(*, beta: float = Decorrelation.beta) -> Method:
    """FedAvg with a penalty on correlations between the dimensions of the embedding.

    Args:
        beta: factor on the penalty.
    """
    return Method("FedDecorr", penalties=(Decorrelation(beta),))


def fed_rod(*, tau: float = LogitAdjusted.tau, start: Start = PersonalHead.start) -> Method:
    """Balanced softmax for the shared model, and a personal head that stays with each client.

    Args:
        tau: factor on the logarithm of the client's class counts.
        start: the personal head begins with "zeros", or as a "copy" of the shared classifier.
    """
    return Method("Fed-ROD", loss=LogitAdjusted(tau), penalties=(PersonalHead(start),))


def climb(
    *,
    lr: float = LossBalance.lr,
    tolerance: float = LossBalance.tolerance,
    most: float = LossBalance.most,
    every: int = StartLoss.every,
) -> Method:
    """FedAvg with larger weights for clients whose loss is above the average.

    Args:
        lr: step size of the multipliers.
        tolerance: by how much a client's loss may exceed the mean.
        most: the largest multiplier.
        every: rounds from one report of losses to the next.
    """
    return Method(
        "CLIMB",
        statistics=(StartLoss(every),),
        server=(LossBalance(lr, tolerance, most),),
    )


def creff(
    *,
    features: int = FederatedFeatures.features,
    steps: int = FederatedFeatures.steps,
    feature_lr: float = FederatedFeatures.lr,
    epochs: int = FederatedFeatures.retraining.epochs,
    head_lr: float = FederatedFeatures.retraining.lr,
    known_only: bool = FederatedFeatures.known_only,
) -> Method:
    """FedAvg served with a classifier trained on features whose gradients match the clients'.

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
    """FedAvg served with a classifier trained on features drawn from a Gaussian of each class.

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
    teacher: Teacher,
    *,
    prototypes: Sequence[Sequence[float]] = (),
    alpha: float = 1.0,
    temperature: float = 3.0,
    contrast: float = 0.001,
    features: int = FederatedFeatures.features,
    steps: int = FederatedFeatures.steps,
    epochs: int = FederatedFeatures.retraining.epochs,
) -> Method:
    """CReFF with a teacher: clients learn its logits, and features are drawn to its prototypes.

    It is made in Python only, since a recipe cannot hold a teacher.

    Args:
        teacher: a network, or a function of a batch as the network gets it, that returns logits.
        prototypes: a vector for each class, such as CLIP's text embeddings; needed for a contrast.
        alpha: factor on the distillation.
        temperature: of the distillation.
        contrast: factor on the contrast of features with prototypes; 0 leaves it out.
        features: features of each class at the server.
        steps: steps of matching in a round.
        epochs: epochs over the features for the classifier.
    """
    retraining = Retraining(
        epochs, FederatedFeatures.retraining.batch_size, FederatedFeatures.retraining.lr
    )
    server = FederatedFeatures(
        features,
        steps,
        retraining=retraining,
        contrast=contrast,
        prototypes=tuple(tuple(map(float, row)) for row in prototypes),
    )
    return Method(
        "CLIP2FL",
        penalties=(Distillation(teacher, alpha, temperature),),
        statistics=(HeadGradients(),),
        server=(server,),
    )
