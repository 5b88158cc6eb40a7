"""Where a data set is to come from: all that a loader may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedbb.data.download import Progress, cache_folder


@dataclass(frozen=True)
class Source:
    """A data set by name, with the user's own file and options where it takes them.

    `root` is the folder of downloads (None: the cache folder), `path` the user's file. `seed`
    decides what a loader draws, such as a test share; it is the data's own, so that runs which
    differ in their seed still share one test set. `progress` hears of images being decoded: how
    many are done, and how many there are.
    """

    name: str
    root: Path | None = None
    path: Path | None = None
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    progress: Progress | None = field(default=None, compare=False, repr=False)

    @property
    def folder(self) -> Path:
        """The folder that holds the downloads of this data set."""
        return (self.root or cache_folder()) / self.name

    @property
    def decoded(self) -> Path:
        """The folder that holds decoded images of this data set."""
        return self.folder / "decoded"
