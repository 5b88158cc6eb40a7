"""Losses: frozen specs that bind to a client's counts, and drop-in modules."""

from fedbb.losses.base import Loss
from fedbb.losses.class_balanced import CBLoss, ClassBalanced
from fedbb.losses.cross_entropy import CrossEntropy, ScaledCrossEntropy
from fedbb.losses.focal import Focal, FocalLoss
from fedbb.losses.logit_calibrated import Calibrated, Calibration, FedLCLoss, LogitCalibrated
from fedbb.losses.pnb import PNB, PNBLoss

__all__ = [
    "PNB",
    "CBLoss",
    "Calibrated",
    "Calibration",
    "ClassBalanced",
    "CrossEntropy",
    "FedLCLoss",
    "Focal",
    "FocalLoss",
    "LogitCalibrated",
    "Loss",
    "PNBLoss",
    "ScaledCrossEntropy",
]
