"""Federated learning with imbalanced labels: imbalance analysis, PNB loss, CBR aggregation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbb import data as data
    from fedbb import partition as partition
    from fedbb.analysis.inspect import inspect as inspect
    from fedbb.data.dataset import Dataset as Dataset
    from fedbb.errors import DataError as DataError
    from fedbb.errors import DivergedError as DivergedError
    from fedbb.errors import FedbbError as FedbbError
    from fedbb.errors import RecipeError as RecipeError
    from fedbb.errors import RunError as RunError
    from fedbb.imbalance.cases import case_weights as case_weights
    from fedbb.imbalance.cases import effective_number as effective_number
    from fedbb.imbalance.classes import class_factors as class_factors
    from fedbb.imbalance.classes import class_shares as class_shares
    from fedbb.imbalance.classes import share_spread as share_spread
    from fedbb.imbalance.clients import client_weights as client_weights
    from fedbb.imbalance.clients import dispersion as dispersion
    from fedbb.imbalance.counts import count_labels as count_labels
    from fedbb.losses.class_balanced import CBLoss as CBLoss
    from fedbb.losses.fedbb_plus import FedBBPlusLoss as FedBBPlusLoss
    from fedbb.losses.focal import FocalLoss as FocalLoss
    from fedbb.losses.logit_adjusted import LogitAdjustedLoss as LogitAdjustedLoss
    from fedbb.losses.logit_calibrated import FedLCLoss as FedLCLoss
    from fedbb.losses.pnb import PNBLoss as PNBLoss
    from fedbb.losses.weights import class_weights as class_weights
    from fedbb.partition.partition import Partition as Partition
    from fedbb.records import LabelCounts as LabelCounts
    from fedbb.records import Task as Task

__version__ = "0.1.0"

_EXPORTS = {
    "fedbb.analysis.inspect": ("inspect",),
    "fedbb.data.dataset": ("Dataset",),
    "fedbb.errors": ("DataError", "DivergedError", "FedbbError", "RecipeError", "RunError"),
    "fedbb.imbalance.cases": ("case_weights", "effective_number"),
    "fedbb.imbalance.classes": ("class_factors", "class_shares", "share_spread"),
    "fedbb.imbalance.clients": ("client_weights", "dispersion"),
    "fedbb.imbalance.counts": ("count_labels",),
    "fedbb.losses.class_balanced": ("CBLoss",),
    "fedbb.losses.fedbb_plus": ("FedBBPlusLoss",),
    "fedbb.losses.focal": ("FocalLoss",),
    "fedbb.losses.logit_adjusted": ("LogitAdjustedLoss",),
    "fedbb.losses.logit_calibrated": ("FedLCLoss",),
    "fedbb.losses.pnb": ("PNBLoss",),
    "fedbb.losses.weights": ("class_weights",),
    "fedbb.partition.partition": ("Partition",),
    "fedbb.records": ("LabelCounts", "Task"),
}
"""The public names by the module that defines them; docs/api.md documents each."""

_PACKAGES = ("data", "partition")
"""The public sub-packages, imported on first use as well."""

_HOMES = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    # Names are imported on first use: `import fedbb` alone must not spend seconds on torch, so
    # that the command line can start worker processes that import it in parallel.
    if name in _PACKAGES:
        return import_module(f"fedbb.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'fedbb' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
