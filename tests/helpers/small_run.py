"""A recipe that runs in a fraction of a second, on an .npz made here."""

import numpy as np

from fedbb.recipes.reader import make_recipe
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run


def write_npz(path, samples=80):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, samples)
    images = rng.integers(0, 120, (samples, 8, 8), dtype=np.uint8)
    images[np.arange(samples), labels, :] += 100
    split = np.where(np.arange(samples) < samples * 3 // 4, "train", "test")
    np.savez(path, images=images, labels=labels, split=split)
    return path


def small_values(path, **changes):
    values = {
        "engine": "inline",
        "data": {
            "name": "npz",
            "path": str(path),
            "partition": {"kind": "even", "clients": 3},
        },
        "method": {"name": "fedbb"},
        "local": {"batch_size": 8, "lr": 0.05},
        "rounds": {"number": 4},
    }
    return {**values, **changes}


def small_recipe(folder, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    return make_recipe(small_values(write_npz(folder / "small.npz"), **changes))


def finish(recipe, path, **options):
    """Run a recipe to its end; return its summary and the records of this run."""
    records = list(run(recipe, path, **options))
    return RunFolder(path).read_json("summary.json"), records


def without_seconds(records):
    return [
        {key: value for key, value in record.items() if key not in ("seconds", "work")}
        for record in records
    ]


def one_round(folder, **data):
    """Run a recipe with this data for a round, divided between two clients by label skew."""
    skew = {"kind": "label-skew", "clients": 2, "concentration": 1.0, "min_samples": 1}
    values = {
        "engine": "inline",
        "data": {"partition": skew, **data},
        "method": {"name": "fedbb"},
        "local": {"batch_size": 4},
        "rounds": {"number": 1},
    }
    (record,) = run(make_recipe(values), folder / "run")
    return record
