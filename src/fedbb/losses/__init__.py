"""Losses: drop-in modules, and frozen specs that bind to a client's counts.

The modules (`PNBLoss`, …) take the place of torch's losses in any training loop. The specs (`PNB`,
…) are the loss of a method, `fedbb.methods.Method(loss=...)`.
"""

from fedbb.losses.base import Loss
from fedbb.losses.class_balanced import CBLoss, ClassBalanced
from fedbb.losses.cross_entropy import CrossEntropy, ScaledCrossEntropy
from fedbb.losses.evidential import Evidential, EvidentialLoss, opinion
from fedbb.losses.fedbb_plus import FedBBPlusLoss
from fedbb.losses.focal import Focal, FocalLoss
from fedbb.losses.importance import ImportanceWeighted
from fedbb.losses.logit_adjusted import LogitAdjusted, LogitAdjustedLoss
from fedbb.losses.logit_calibrated import Calibrated, Calibration, FedLCLoss, LogitCalibrated
from fedbb.losses.pnb import PNB, PNBLoss
from fedbb.losses.restricted_softmax import RestrictedSoftmax
from fedbb.losses.symmetric import Symmetric, SymmetricLoss
from fedbb.losses.weights import class_weights

__all__ = [
    "PNB",
    "CBLoss",
    "Calibrated",
    "Calibration",
    "ClassBalanced",
    "CrossEntropy",
    "Evidential",
    "EvidentialLoss",
    "FedBBPlusLoss",
    "FedLCLoss",
    "Focal",
    "FocalLoss",
    "ImportanceWeighted",
    "LogitAdjusted",
    "LogitAdjustedLoss",
    "LogitCalibrated",
    "Loss",
    "PNBLoss",
    "RestrictedSoftmax",
    "ScaledCrossEntropy",
    "Symmetric",
    "SymmetricLoss",
    "class_weights",
    "opinion",
]
