"""The trackers a command may name, and where each of them keeps its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from fedbb._util.names import nearest
from fedbb.errors import RecipeError
from fedbb.trackers.base import Tracker
from fedbb.trackers.mlflow_store import MlflowStore
from fedbb.trackers.tensorboard_log import TensorBoardLog
from fedbb.trackers.wandb_offline import WandbOffline

FOLDER = Path("tracking")


@dataclass(frozen=True)
class Kind:
    """A tracker by the package that it needs, which is also the name of its extra."""

    package: str
    build: Callable[[Path], Tracker]


TRACKERS = {
    "tensorboard": Kind("tensorboard", TensorBoardLog),
    "mlflow": Kind("mlflow", MlflowStore),
    "wandb": Kind("wandb", WandbOffline),
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
