"""Federated learning when labels are uneven."""

from fedbb.errors import DataError, DivergedError, FedbbError, RecipeError, RunError
from fedbb.imbalance.cases import case_weights, effective_number
from fedbb.imbalance.classes import class_factors, class_shares, share_spread
from fedbb.imbalance.clients import client_weights, dispersion
from fedbb.imbalance.counts import count_labels
from fedbb.inspection.inspect import inspect
from fedbb.losses.class_balanced import CBLoss
from fedbb.losses.focal import FocalLoss
from fedbb.losses.logit_calibrated import FedLCLoss
from fedbb.losses.pnb import PNBLoss
from fedbb.records import LabelCounts, Task

__version__ = "0.1.0"

__all__ = [
    "CBLoss",
    "DataError",
    "DivergedError",
    "FedLCLoss",
    "FedbbError",
    "FocalLoss",
    "LabelCounts",
    "PNBLoss",
    "RecipeError",
    "RunError",
    "Task",
    "case_weights",
    "class_factors",
    "class_shares",
    "client_weights",
    "count_labels",
    "dispersion",
    "effective_number",
    "inspect",
    "share_spread",
]
