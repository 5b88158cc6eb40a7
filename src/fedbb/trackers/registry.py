"""Experiment trackers: their interface, how a command names them, and the three that there are.

The package of a tracker is imported when a run begins, since each is an extra of its own.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fedbb._util.names import nearest
from fedbb.errors import RecipeError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = Path("tracking")

PROJECT = "fedbb"
"""The experiment of MLflow and the project of Weights & Biases."""

IDENTITY = "fedbb.identity"
METRICS_AT_ONCE = 1000
PARAMS_AT_ONCE = 100
LONGEST_PARAM = 6000

ROUND = "round"
"""The measure that a tracker writes last of a round: where it is, the round is there whole."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker knows it.

    Attributes:
        name: Name of the run's folder.
        identity: Distinguishes runs; it consists of letters, digits, `-` and `_` only.
        settings: The settings of the recipe by dotted names.
        is_new: Whether the run replaces what was tracked of an earlier one.
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


class TensorBoardLog:
    """Writes scalars, and the recipe as a text."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tensorboard"
        self.last = 0
        self._writer: SummaryWriter | None = None

    @property
    def writer(self) -> SummaryWriter:
        """The open event file."""
        assert self._writer is not None, "begin comes first"
        return self._writer

    def begin(self, run: TrackedRun) -> int:
        """Open an event file; readers drop what earlier ones say of the rounds still to come."""
        from torch.utils.tensorboard import SummaryWriter

        place = self.folder / run.identity
        self.last = 0 if run.is_new else last_round(place)
        purge = self.last + 1 if self.last else 0
        self._writer = SummaryWriter(str(place), purge_step=purge)
        if not self.last:
            self.writer.add_text("recipe", _listing(run.settings), 0)
        return self.last

    def record(self, number: int, measures: Mapping[str, float]) -> None:
        """Write the measures and see them to disk."""
        self._write(number, measures)
        self.last = number

    def end(self, summary: Mapping[str, float] | None) -> None:
        """Write the summary as a step after the last round, where a later one replaces it."""
        if summary is not None:
            self._write(self.last + 1, summary)
        self.writer.close()

    def _write(self, number: int, measures: Mapping[str, float]) -> None:
        for name, value in measures.items():
            self.writer.add_scalar(name, value, number)
        self.writer.flush()


def last_round(place: Path) -> int:
    """Return the last whole round in the event files of a folder, 0 for none."""
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    if not place.is_dir():
        return 0
    events = EventAccumulator(str(place), size_guidance={SCALARS: 1})
    events.Reload()
    if ROUND not in events.Tags()[SCALARS]:
        return 0
    return int(events.Scalars(ROUND)[-1].step)


def _listing(settings: Mapping[str, object]) -> str:
    """Return settings as Markdown that shows them as they are."""
    return "\n".join(f"    {key} = {value!r}" for key, value in settings.items())


class MlflowStore:
    """Writes measures as metrics and settings as parameters."""

    def __init__(self, folder: Path) -> None:
        if set("?%#") & set(str(folder.resolve())):
            # They have a meaning of their own in the store's address.
            raise RecipeError(
                f"MLflow cannot keep its store in {folder}: choose one without ?, %, #"
            )
        self.folder = folder
        self.client: Any = None
        self.run = ""
        self.is_whole = False

    def begin(self, run: TrackedRun) -> int:
        """Find the run by its identity, or make it."""
        self.client = _connect(self.folder)
        experiment = self._experiment()
        found = [] if run.is_new else self._find(experiment, run.identity)
        if found:
            self.run = found[0].info.run_id
            self.is_whole = found[0].info.status == "FINISHED"
            if not self.is_whole:
                self.client.update_run(self.run, status="RUNNING")
            return self._last_round()
        tags = {IDENTITY: run.identity}
        self.run = self.client.create_run(experiment, run_name=run.name, tags=tags).info.run_id
        self._set_params(run.settings)
        return 0

    def record(self, number: int, measures: Mapping[str, float]) -> None:
        """Log the measures as one batch; a larger one ends with the mark of a whole round."""
        self._log(number, measures)
        self.is_whole = False

    def end(self, summary: Mapping[str, float] | None) -> None:
        """Log the summary, once, and close the run."""
        if self.is_whole:
            return
        if summary is not None:
            self._log(int(summary["final/round"]), summary)
        self.client.set_terminated(self.run, "KILLED" if summary is None else "FINISHED")

    def _experiment(self) -> str:
        found = self.client.get_experiment_by_name(PROJECT)
        if found is not None:
            return str(found.experiment_id)
        place = (self.folder / "mlflow-artifacts").resolve().as_uri()
        return str(self.client.create_experiment(PROJECT, artifact_location=place))

    def _find(self, experiment: str, identity: str) -> list[Any]:
        wanted = f"tags.`{IDENTITY}` = '{identity}'"
        newest = ["attributes.start_time DESC"]
        return list(self.client.search_runs([experiment], wanted, max_results=1, order_by=newest))

    def _last_round(self) -> int:
        history = self.client.get_metric_history(self.run, ROUND)
        return max((int(metric.step) for metric in history), default=0)

    def _set_params(self, settings: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        params = [Param(_key(key), str(value)[:LONGEST_PARAM]) for key, value in settings.items()]
        for start in range(0, len(params), PARAMS_AT_ONCE):
            self.client.log_batch(self.run, params=params[start : start + PARAMS_AT_ONCE])

    def _log(self, number: int, measures: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = time.time_ns() // 1_000_000
        metrics = [Metric(name, value, now, number) for name, value in measures.items()]
        for start in range(0, len(metrics), METRICS_AT_ONCE):
            self.client.log_batch(self.run, metrics=metrics[start : start + METRICS_AT_ONCE])


def _connect(folder: Path) -> Any:
    # Both must be known before the package is first imported.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    from mlflow import MlflowClient

    for noisy in ("alembic", "mlflow"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    folder.mkdir(parents=True, exist_ok=True)
    store = folder.resolve() / "mlflow.db"
    _check_store(store)
    return MlflowClient(f"sqlite:///{store}")


def _check_store(store: Path) -> None:
    """Raise at once where a store cannot be opened; MLflow would try again for minutes."""
    with closing(sqlite3.connect(store)) as opened:
        opened.execute("PRAGMA schema_version")


def _key(name: str) -> str:
    return re.sub(r"[^\w./-]", "_", name, flags=re.ASCII)


class WandbOffline:
    """Writes each run into a folder of its own, anew whenever it is opened.

    An offline file can be read back only by the service it is meant for, so it is not appended to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run: Any = None

    def begin(self, run: TrackedRun) -> int:
        """Begin the run's file anew, in place of the one before."""
        # It must be known before the package is first imported.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self.folder.mkdir(parents=True, exist_ok=True)
        _forget(self.folder / "wandb", run.identity)
        self.run = wandb.init(
            mode="offline",
            project=PROJECT,
            id=run.identity,
            name=run.name,
            dir=str(self.folder.resolve()),
            config=dict(run.settings),
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_code=True,
                disable_git=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_disable_machine_info=True,
                x_save_requirements=False,
            ),
        )
        return 0

    def record(self, number: int, measures: Mapping[str, float]) -> None:
        """Log the measures as one step."""
        self.run.log(dict(measures), step=number)

    def end(self, summary: Mapping[str, float] | None) -> None:
        """Put the summary beside the last values, and close the file."""
        if summary is not None:
            self.run.summary.update(dict(summary))
        self.run.finish(exit_code=1 if summary is None else 0)


def _forget(place: Path, identity: str) -> None:
    """Delete the offline folders of this very run."""
    pattern = re.compile(rf"offline-run-\d+_\d+-{re.escape(identity)}")
    folders = place.iterdir() if place.is_dir() else ()
    for folder in [found for found in folders if pattern.fullmatch(found.name)]:
        shutil.rmtree(folder)


@dataclass(frozen=True)
class Kind:
    """A tracker: the package it needs, which is also the name of its extra, and its builder."""

    package: str
    build: Callable[[Path], Tracker]


TRACKERS = {
    "tensorboard": Kind("tensorboard", TensorBoardLog),
    "mlflow": Kind("mlflow", MlflowStore),
    "wandb": Kind("wandb", WandbOffline),
}


def make_tracker(wanted: str) -> Tracker:
    """Return the tracker of a text such as "mlflow" or "tensorboard=folder".

    Args:
        wanted: "NAME" or "NAME=FOLDER"; the folder is `tracking` if none is given.

    Raises:
        RecipeError: The name is unknown, or the package of the tracker is not installed.
    """
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
