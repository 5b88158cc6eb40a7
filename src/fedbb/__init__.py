"""Federated learning when labels are uneven."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbb.analysis.inspect import inspect
    from fedbb.errors import DataError, DivergedError, FedbbError, RecipeError, RunError
    from fedbb.imbalance.cases import case_weights, effective_number
    from fedbb.imbalance.classes import class_factors, class_shares, share_spread
    from fedbb.imbalance.clients import client_weights, dispersion
    from fedbb.imbalance.counts import count_labels
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

# Each name is fetched from its home when it is first asked for: `import fedbb` by itself then
# takes no seconds for torch, and the command line can have workers begin with that beside it.
_HOMES = {
    "CBLoss": "fedbb.losses.class_balanced",
    "DataError": "fedbb.errors",
    "DivergedError": "fedbb.errors",
    "FedLCLoss": "fedbb.losses.logit_calibrated",
    "FedbbError": "fedbb.errors",
    "FocalLoss": "fedbb.losses.focal",
    "LabelCounts": "fedbb.records",
    "PNBLoss": "fedbb.losses.pnb",
    "RecipeError": "fedbb.errors",
    "RunError": "fedbb.errors",
    "Task": "fedbb.records",
    "case_weights": "fedbb.imbalance.cases",
    "class_factors": "fedbb.imbalance.classes",
    "class_shares": "fedbb.imbalance.classes",
    "client_weights": "fedbb.imbalance.clients",
    "count_labels": "fedbb.imbalance.counts",
    "dispersion": "fedbb.imbalance.clients",
    "effective_number": "fedbb.imbalance.cases",
    "inspect": "fedbb.analysis.inspect",
    "share_spread": "fedbb.imbalance.classes",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedbb' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
