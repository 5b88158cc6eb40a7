"""Results as JSON files with the facts of their machine, and the statistics that all share."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine

FOLDER = Path(__file__).parent / "results"
REFUSED = Path(__file__).parent / "refused"
"""Where a result goes that was taken on a busy machine; nothing reads it."""

MOST_LOAD = 0.25
"""Cores that other programs may use before and after a measurement."""

SETTLING = 8
"""Seconds after a measurement of which one must be quiet."""


def expect_quiet(folder: Path) -> None:
    """End the program if the machine is busy and the result is meant for the repository.

    Raises:
        SystemExit: Other programs use more than `MOST_LOAD` cores.
    """
    if folder.resolve() != FOLDER:
        return
    load = machine.foreign_load()
    if load > MOST_LOAD:
        raise SystemExit(
            f"this machine is busy: other programs use {load:.2f} cores, and {MOST_LOAD} are "
            "allowed. For a trial whose result is not kept, give --out another folder."
        )


def write(name: str, values: dict[str, Any], folder: Path = FOLDER) -> Path:
    """Write a result beside the facts of this machine, and return its file.

    A result for the repository is refused if the machine is busy by now; it goes to `REFUSED`.
    """
    if folder.resolve() == FOLDER and _stays_busy():
        folder = REFUSED
        print("this machine became busy: the result is not kept")
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine.facts(), **values}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def _stays_busy() -> bool:
    """Return whether no second of the next few is quiet.

    Ending processes and the kernel, which takes back their memory, are busy for some seconds
    after a measurement; a program that disturbed it is busy for longer.
    """
    return all(machine.foreign_load() > MOST_LOAD for _ in range(SETTLING))


def read(name: str, folder: Path = FOLDER) -> dict[str, Any] | None:
    """Return a result, None if it was never taken."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, least and most of some values.

    >>> spread([3.0, 1.0, 2.0])
    {'median': 2.0, 'least': 1.0, 'most': 3.0}
    """
    return {
        "median": round(statistics.median(values), 5),
        "least": round(min(values), 5),
        "most": round(max(values), 5),
    }


def ratios(times: Sequence[float], reference: Sequence[float]) -> dict[str, float]:
    """Return the spread of the ratios of times that were taken side by side."""
    return spread([one / two for one, two in zip(times, reference, strict=True)])


def format_spread(values: dict[str, float], digits: int = 2) -> str:
    """Return a spread as "median (min–max)" for a table.

    >>> format_spread({"median": 0.5512, "least": 0.5, "most": 0.6})
    '0.55 (0.50–0.60)'
    """
    middle, least, most = (f"{values[key]:.{digits}f}" for key in ("median", "least", "most"))
    return f"{middle} ({least}–{most})"
