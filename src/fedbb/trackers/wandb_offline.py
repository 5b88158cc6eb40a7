"""Weights & Biases, offline: FOLDER/wandb, from where `wandb sync` uploads if one wishes."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedbb.trackers.registry import TrackedRun

PROJECT = "fedbb"


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
