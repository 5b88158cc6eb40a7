"""Peak memory of a run on a data set that is larger than memory should hold.

Writes random images to a folder of .npy files, runs one round of a linear model on them with
validation data and two workers, and prints the peak memory of each process: anonymous memory, which
the process needs, and pages of mapped files, which the system takes back when others need memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SHAPE = (3, 256, 256)
ROWS = 64


def write(folder: Path, gigabytes: float) -> None:
    """Write images whose brightness tells their class."""
    folder.mkdir(parents=True, exist_ok=True)
    number = round(gigabytes * 1e9 / np.prod(SHAPE))
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, number)
    np.save(folder / "labels.npy", labels)
    images = np.lib.format.open_memmap(folder / "images.npy", "w+", np.uint8, (number, *SHAPE))
    noise = rng.integers(0, 128, (ROWS, *SHAPE), dtype=np.uint8)
    for start in range(0, number, ROWS):
        part = labels[start : start + ROWS].astype(np.uint8) * np.uint8(12)
        images[start : start + ROWS] = noise[: len(part)] + part[:, None, None, None]


def recipe(folder: Path) -> dict:
    return {
        "engine": "pool",
        "data": {
            "name": "npz",
            "path": str(folder),
            "validation": 0.1,
            "partition": {"kind": "even", "clients": 4},
        },
        "model": {"name": "linear"},
        "method": {"name": "fedbb"},
        "rounds": {"number": 1},
    }


def processes(parent: int) -> list[int]:
    """Return a process and all below it."""
    found = [parent]
    for process in found:
        for task in Path(f"/proc/{process}/task").glob("*/children"):
            found.extend(int(child) for child in task.read_text().split())
    return found


def measure(command: list[str]) -> tuple[dict[int, dict[str, int]], float]:
    """Return the peak of each kind of memory by process, in MB, and the seconds of a command."""
    peaks: dict[int, dict[str, int]] = {}
    began = time.monotonic()
    with subprocess.Popen(command) as run:
        while run.poll() is None:
            try:
                for process in processes(run.pid):
                    status = Path(f"/proc/{process}/status").read_text()
                    held = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
                    mine = peaks.setdefault(process, dict.fromkeys(("RssAnon", "RssFile"), 0))
                    for kind in mine:
                        mine[kind] = max(mine[kind], int(held.get(kind, "0").split()[0]) // 1000)
            except OSError:
                pass  # it has just ended
            time.sleep(0.2)
        if run.returncode:
            sys.exit(run.returncode)
    return peaks, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="for the data and the run")
    parser.add_argument("--gigabytes", type=float, default=8.0)
    options = parser.parse_args()
    data = options.folder / "data"
    if not data.exists():
        write(data, options.gigabytes)
    path = options.folder / "recipe.json"
    path.write_text(json.dumps(recipe(data)))
    out = options.folder / "run"
    command = [sys.executable, "-m", "fedbb", "run", str(path), "--out", str(out), "--workers", "2"]
    peaks, seconds = measure([*command, "--quiet"])
    size = (data / "images.npy").stat().st_size / 1e9
    print(f"{size:.2f} GB of images, {seconds:.0f} s")
    for place, held in enumerate(peaks.values()):
        who = "worker" if place else "parent"
        print(f"{who}: anonymous {held['RssAnon']} MB, mapped files {held['RssFile']} MB")


if __name__ == "__main__":
    main()
