"""Every base × balancing pair trains on both tasks, stays finite, and resumes to the bit."""

import shutil
from itertools import product

import numpy as np
import pytest

from fedbb.data.registry import load_dataset
from fedbb.methods import BALANCING, BASES, build_method
from fedbb.recipes.reader import make_recipe
from fedbb.records import Task
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from helpers.cover import few
from helpers.small_run import small_recipe, small_values
from helpers.suited_settings import can_be_built, network_of, public_data
from helpers.teachers import teacher_options

PAIRS = [
    name
    for name in (*BASES, *BALANCING, *("+".join(pair) for pair in product(BASES, BALANCING)))
    if can_be_built(name)
]
TASKS = [
    (name, str(task)) for name in PAIRS for task in Task if build_method(name, {}).supports(task)
]


def grid_recipe(folder, method, task, participation):
    recipe = small_recipe(folder)
    path = folder / "small.npz"
    if task == Task.MULTILABEL:
        arrays = dict(np.load(path))
        labels = np.eye(3, dtype=np.float32)[arrays["labels"]]
        labels[::5, 0] = 1
        np.savez(path, **{**arrays, "labels": labels})
    data = load_dataset("npz", path=path)
    assert data.task == task
    changes = {
        "method": {"name": method, "options": teacher_options(method, path)},
        "rounds": {"number": 3, "participation": participation},
        "data": {
            "name": "npz",
            "path": str(path),
            "partition": {"kind": "even", "clients": 4},
            **public_data(method),
        },
        "model": network_of(method),
    }
    return make_recipe({**small_values(path), **changes, "seed": recipe.seed})


SHARES = (1.0, 0.3)
# A part of the pairs: each base with some balancing methods, and the other way round.
DIAGONALS = {
    f"{base}+{balancing}"
    for place, base in enumerate(BASES)
    for other, balancing in enumerate(BALANCING)
    if (place + other) % 7 == 0
}


def is_fast(name, task):
    """Tell whether a method is alone, or of a pair on multi-class data without server steps."""
    alone = "+" not in name
    return alone or (name in DIAGONALS and task == "multiclass" and not METHOD[name].server)


METHOD = {name: build_method(name, {}) for name in PAIRS}
# One share of the clients here, in turns; the others are among the slow ones.
CASES = [
    pytest.param(
        name,
        task,
        share,
        marks=[] if is_fast(name, task) and (place + turn) % 2 == 0 else [pytest.mark.slow],
    )
    for place, (name, task) in enumerate(TASKS)
    for turn, share in enumerate(SHARES)
]


@pytest.mark.parametrize(("method", "task", "participation"), few(CASES, 24))
def test_a_pair_takes_three_rounds_and_resumes_to_the_bit(tmp_path, method, task, participation):
    recipe = grid_recipe(tmp_path, method, task, participation)
    rounds = run(recipe, tmp_path / "whole")
    records = [next(rounds), next(rounds)]
    # What a run leaves behind that is killed here.
    shutil.copytree(tmp_path / "whole", tmp_path / "left")
    records.extend(rounds)
    assert all(np.isfinite(c["train_loss"]) for record in records for c in record["clients"])
    list(run(recipe, tmp_path / "left", resume=True))
    sums = [
        RunFolder(tmp_path / name).read_json("summary.json")["sha256"] for name in ("whole", "left")
    ]
    assert sums[0] == sums[1]
