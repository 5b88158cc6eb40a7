"""A process that runs one case of `growth.py` and tells when each of its rounds is on disk."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.work import CLASSES, SCORED, Work, recipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="small-cnn")
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--chosen", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", default="pool")
    options = parser.parse_args()
    from fedbb.recipes.reader import make_recipe
    from fedbb.runs.runner import run

    with tempfile.TemporaryDirectory() as scratch:
        made = make_recipe(values(options))
        for record in run(made, Path(scratch) / "run"):
            steps = sum(client["steps"] for client in record["clients"])
            shown = {"at": time.monotonic(), "clients": len(record["clients"]), "steps": steps}
            print(json.dumps(shown), flush=True)


def values(options: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the case's recipe."""
    made = recipe(Work(options.model, options.clients), options.data, options.engine)
    made["rounds"] = {
        "number": options.rounds,
        "participation": min(1.0, options.chosen / options.clients),
    }
    return made


def save_small_images(path: Path, number: int, size: int) -> None:
    """Write gray images, and a few to score on."""
    rng = np.random.default_rng(0)
    arrays = {}
    for prefix, length in (("", number), ("test_", SCORED)):
        arrays[f"{prefix}images"] = rng.integers(0, 256, (length, 1, size, size), dtype=np.uint8)
        arrays[f"{prefix}labels"] = rng.integers(0, CLASSES, length)
    np.savez(path, **arrays)


if __name__ == "__main__":
    main()
