"""MLflow: one local SQLite store for all runs, FOLDER/mlflow.db, without server or network."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from fedbb.errors import RecipeError
from fedbb.trackers.registry import ROUND, TrackedRun

EXPERIMENT = "fedbb"
IDENTITY = "fedbb.identity"
METRICS_AT_ONCE = 1000
PARAMS_AT_ONCE = 100
LONGEST_PARAM = 6000


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
        found = self.client.get_experiment_by_name(EXPERIMENT)
        if found is not None:
            return str(found.experiment_id)
        place = (self.folder / "mlflow-artifacts").resolve().as_uri()
        return str(self.client.create_experiment(EXPERIMENT, artifact_location=place))

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
