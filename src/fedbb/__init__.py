"""Federated learning with imbalanced labels: imbalance analysis, PNB loss, CBR aggregation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedbb._version import __version__ as __version__

# For type checkers and editors; a test holds it equal to the tables below.
if TYPE_CHECKING:
    from fedbb import data as data
    from fedbb import inference as inference
    from fedbb import losses as losses
    from fedbb import methods as methods
    from fedbb import models as models
    from fedbb import partition as partition
    from fedbb import report as report
    from fedbb import trackers as trackers
    from fedbb.analysis.inspect import inspect as inspect
    from fedbb.data.dataset import Dataset as Dataset
    from fedbb.errors import DataError as DataError
    from fedbb.errors import DivergedError as DivergedError
    from fedbb.errors import FedbbError as FedbbError
    from fedbb.errors import RecipeError as RecipeError
    from fedbb.errors import RunError as RunError
    from fedbb.evaluation.operating_point import choose_thresholds as choose_thresholds
    from fedbb.evaluation.score_report import ScoreReport as ScoreReport
    from fedbb.evaluation.score_report import score as score
    from fedbb.imbalance import case_weights as case_weights
    from fedbb.imbalance import class_factors as class_factors
    from fedbb.imbalance import class_shares as class_shares
    from fedbb.imbalance import client_weights as client_weights
    from fedbb.imbalance import count_labels as count_labels
    from fedbb.imbalance import dispersion as dispersion
    from fedbb.imbalance import effective_number as effective_number
    from fedbb.imbalance import share_spread as share_spread
    from fedbb.inference.model import load_model as load_model
    from fedbb.losses.class_balanced import CBLoss as CBLoss
    from fedbb.losses.evidential import EvidentialLoss as EvidentialLoss
    from fedbb.losses.fedbb_plus import FedBBPlusLoss as FedBBPlusLoss
    from fedbb.losses.focal import FocalLoss as FocalLoss
    from fedbb.losses.logit_adjusted import LogitAdjustedLoss as LogitAdjustedLoss
    from fedbb.losses.logit_calibrated import FedLCLoss as FedLCLoss
    from fedbb.losses.pnb import PNBLoss as PNBLoss
    from fedbb.losses.symmetric import SymmetricLoss as SymmetricLoss
    from fedbb.losses.weights import class_weights as class_weights
    from fedbb.methods.record import Method as Method
    from fedbb.partition.partition import Partition as Partition
    from fedbb.recipes.reader import read_recipe as read_recipe
    from fedbb.recipes.spec import Recipe as Recipe
    from fedbb.records import LabelCounts as LabelCounts
    from fedbb.records import Task as Task
    from fedbb.report.frames import read_run as read_run
    from fedbb.report.frames import read_runs as read_runs
    from fedbb.report.sweep.sweep import Sweep as Sweep
    from fedbb.report.sweep.sweep import sweep as sweep
    from fedbb.rounds.loop import Schedule as Schedule
    from fedbb.rounds.round import RoundPolicy as RoundPolicy
    from fedbb.runs.classifier import fit_classifier as fit_classifier
    from fedbb.runs.personal import ClientAccuracies as ClientAccuracies
    from fedbb.runs.personal import personalize as personalize
    from fedbb.runs.result import Result as Result
    from fedbb.runs.result import RoundRecord as RoundRecord
    from fedbb.runs.simulate import iter_rounds as iter_rounds
    from fedbb.runs.simulate import run as run
    from fedbb.runs.simulate import simulate as simulate
    from fedbb.runs.tuning import Tuned as Tuned
    from fedbb.runs.tuning import tune as tune
    from fedbb.secagg.dp import DifferentialPrivacy as DifferentialPrivacy
    from fedbb.secagg.neighbours import SecureSums as SecureSums
    from fedbb.training.config import LocalConfig as LocalConfig
    from fedbb.training.config import LRSchedule as LRSchedule

_PACKAGES = (
    "data",
    "inference",
    "losses",
    "methods",
    "models",
    "partition",
    "report",
    "trackers",
)
"""The public modules; their `__all__` lists what is public in them."""

_EXPORTS = {
    "fedbb.analysis.inspect": ("inspect",),
    "fedbb.data.dataset": ("Dataset",),
    "fedbb.errors": ("DataError", "DivergedError", "FedbbError", "RecipeError", "RunError"),
    "fedbb.imbalance": (
        "case_weights",
        "class_factors",
        "class_shares",
        "client_weights",
        "count_labels",
        "dispersion",
        "effective_number",
        "share_spread",
    ),
    "fedbb.evaluation.operating_point": ("choose_thresholds",),
    "fedbb.evaluation.score_report": ("ScoreReport", "score"),
    "fedbb.inference.model": ("load_model",),
    "fedbb.losses.class_balanced": ("CBLoss",),
    "fedbb.losses.evidential": ("EvidentialLoss",),
    "fedbb.losses.fedbb_plus": ("FedBBPlusLoss",),
    "fedbb.losses.focal": ("FocalLoss",),
    "fedbb.losses.logit_adjusted": ("LogitAdjustedLoss",),
    "fedbb.losses.logit_calibrated": ("FedLCLoss",),
    "fedbb.losses.pnb": ("PNBLoss",),
    "fedbb.losses.symmetric": ("SymmetricLoss",),
    "fedbb.losses.weights": ("class_weights",),
    "fedbb.methods.record": ("Method",),
    "fedbb.partition.partition": ("Partition",),
    "fedbb.recipes.reader": ("read_recipe",),
    "fedbb.recipes.spec": ("Recipe",),
    "fedbb.records": ("LabelCounts", "Task"),
    "fedbb.report.frames": ("read_run", "read_runs"),
    "fedbb.report.sweep.sweep": ("Sweep", "sweep"),
    "fedbb.rounds.loop": ("Schedule",),
    "fedbb.rounds.round": ("RoundPolicy",),
    "fedbb.runs.classifier": ("fit_classifier",),
    "fedbb.runs.personal": ("ClientAccuracies", "personalize"),
    "fedbb.runs.result": ("Result", "RoundRecord"),
    "fedbb.runs.simulate": ("iter_rounds", "run", "simulate"),
    "fedbb.runs.tuning": ("Tuned", "tune"),
    "fedbb.secagg.dp": ("DifferentialPrivacy",),
    "fedbb.secagg.neighbours": ("SecureSums",),
    "fedbb.training.config": ("LRSchedule", "LocalConfig"),
}
"""The public names by the module that defines them; docs/api.md documents each."""

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
    return [*__all__, *_PACKAGES, "__version__"]
