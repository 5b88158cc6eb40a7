"""Small runs of every method, task and engine; prints the SHA-256 of their final models as JSON.

The engines are named on the command line; what is printed has a table for each of them.

Run in a process of its own: the instruction set that torch computes with is chosen at its import.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch

from fedbb.recipes.reader import make_recipe
from helpers.flower_loopback import flower_run, open_loopback, take_identity
from helpers.small_run import finish, small_values, write_npz

CLIENTS = 3
METHODS = (
    "fedavg",
    "fedprox",
    "moon",
    "fednova",
    "fedalign",
    "fedlc",
    "focal",
    "cb",
    "fedavg-scaled",
    "fedbb",
    "fedbb-printed",
    "fedbb-plus",
    "pnb",
    "cbr",
)
"""The methods whose models were frozen; later ones have tests of their own."""

PAIRS = ("moon+fedbb", "fednova+fedbb", "fedalign+fedlc", "fedprox+fedbb-plus")
MULTICLASS_ONLY = ("fedlc", "fedalign+fedlc")
SKEW = {"kind": "label-skew", "clients": CLIENTS, "concentration": 1.0, "min_samples": 4}
SIZES = {"kind": "quantity-skew", "clients": CLIENTS, "concentration": 1.0, "min_samples": 8}

CASES = tuple(
    f"{task} {method}"
    for task in ("multiclass", "multilabel")
    for method in (*METHODS, *PAIRS)
    if task == "multiclass" or method not in MULTICLASS_ONLY
)
PRIVATE = ("multiclass fedbb", "multilabel cbr", "multiclass moon+fedbb")


def write_multilabel(path, samples=80):
    rng = np.random.default_rng(1)
    labels = (rng.random((samples, 3)) < [0.5, 0.3, 0.2]).astype(np.float32)
    images = rng.integers(0, 120, (samples, 8, 8), dtype=np.uint8)
    images[:, :3, 0] += (100 * labels).astype(np.uint8)
    split = np.where(np.arange(samples) < samples * 3 // 4, "train", "test")
    np.savez(path, images=images, labels=labels, split=split)
    return path


def recipe_of(folder: Path, case: str, **changes):
    task, method = case.split()
    write = write_npz if task == "multiclass" else write_multilabel
    path = folder / f"{task}.npz"
    if not path.exists():
        write(path)
    data = {"name": "npz", "path": str(path)}
    if changes.get("engine") != "central":
        data["partition"] = SKEW if task == "multiclass" else SIZES
    changes = {"data": data, "method": {"name": method}, "rounds": {"number": 2}, **changes}
    return make_recipe(small_values(path, **changes))


def end_inline(folder, case):
    return finish(recipe_of(folder, case), folder / "run")[0]


def end_pool(folder, case):
    return finish(recipe_of(folder, case, engine="pool"), folder / "run", workers=2)[0]


def end_central(folder, case):
    return finish(recipe_of(folder, case, engine="central"), folder / "run")[0]


def end_masked(folder, case):
    return finish(recipe_of(folder, case, privacy="masked"), folder / "run")[0]


def end_flower(folder, case):
    recipe = recipe_of(folder, case)
    grid = open_loopback(recipe, CLIENTS, state=str(folder / "state"))
    return flower_run(recipe, folder / "run", grid)[0]


ENDS = {
    "inline": (end_inline, CASES),
    "pool": (end_pool, CASES),
    "flower": (end_flower, CASES),
    "central": (end_central, tuple(case for case in CASES if "+" not in case)),
    "masked": (end_masked, PRIVATE),
}


def digests(engine: str) -> dict[str, str]:
    """Return the SHA-256 of the final model of every case of an engine."""
    end, cases = ENDS[engine]
    found = {}
    for case in cases:
        with TemporaryDirectory() as folder:
            found[case] = end(Path(folder), case)["sha256"]
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        take_identity(patch)
        print(json.dumps({engine: digests(engine) for engine in sys.argv[1:]}))
