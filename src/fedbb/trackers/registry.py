"""Experiment trackers: their interface, and how a command names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from fedbb._util.names import nearest
from fedbb.errors import RecipeError

ROUND = "round"
"""The measure that a tracker writes last of a round: where it is, the round is there whole."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker knows it.

    `identity` tells runs apart and consists of letters, digits, `-` and `_` only; `settings` are
    those of the recipe by dotted names. A new run replaces what was tracked of an earlier one.
    """

    name: str
    identity: str
    settings: Mapping[str, Any]
    is_new: bool = False


class Tracker(Protocol):
    """Takes the measures of one run; whatever goes wrong, it raises."""

    def begin(self, run: TrackedRun) -> int:
        """Open the place of a run and return the last round that it holds already, 0 for none."""
        ...

    def record(self, number: int, measures: Mapping[str, float]) -> None:
        """Keep the measures of a round, of which `round` is the last."""
        ...

    def end(self, summary: Mapping[str, float] | None) -> None:
        """Keep the measures of the best and the final round, or None if the run broke off."""
        ...


FOLDER = Path("tracking")


@dataclass(frozen=True)
class Kind:
    """A tracker: the package it needs, which is also the name of its extra, and its builder."""

    package: str
    build: Callable[[Path], Tracker]


# The trackers' modules import this one, and their packages take seconds to load.
def _tensorboard(folder: Path) -> Tracker:
    from fedbb.trackers.tensorboard_log import TensorBoardLog

    return TensorBoardLog(folder)


def _mlflow(folder: Path) -> Tracker:
    from fedbb.trackers.mlflow_store import MlflowStore

    return MlflowStore(folder)


def _wandb(folder: Path) -> Tracker:
    from fedbb.trackers.wandb_offline import WandbOffline

    return WandbOffline(folder)


TRACKERS = {
    "tensorboard": Kind("tensorboard", _tensorboard),
    "mlflow": Kind("mlflow", _mlflow),
    "wandb": Kind("wandb", _wandb),
}


def make_tracker(wanted: str) -> Tracker:
    """Return the tracker of "NAME" or "NAME=FOLDER"; the folder is `tracking` if none is given."""
    name, equals, place = wanted.partition("=")
    if name not in TRACKERS:
        raise RecipeError(f"tracker {name!r} is unknown{nearest(name, TRACKERS)}")
    if equals and not place:
        raise RecipeError(f"tracker {wanted!r} must have the form NAME or NAME=FOLDER")
    kind = TRACKERS[name]
    if find_spec(kind.package) is None:
        raise RecipeError(
            f"tracker {name} needs the package {kind.package}, which is not installed: "
            f'pip install "fedbb[{name}]"'
        )
    return kind.build(Path(place) if equals else FOLDER)
