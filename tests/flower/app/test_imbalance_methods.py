"""Methods against class imbalance, and server optimizers, on Flower: the inline engine's bits."""

import numpy as np
import pytest

from fedbb.data import save_teacher
from fedbb.data.registry import load_dataset
from fedbb.data.source import Source
from helpers.flower_loopback import flower_run, take_identity
from helpers.small_run import finish, small_recipe, without_seconds

SKEW = {"kind": "label-skew", "clients": 3, "concentration": 0.5, "min_samples": 4}
METHODS = {
    "fedir": {},
    "fedvc": {"size": 9},
    "fed-rod": {},
    "climb": {},
    "creff": {"features": 4, "steps": 3, "epochs": 2},
    "ccvr": {"features": 8},
    "fedlc+lda-head": {"lda-head": {"restart": True}},
    "clip2fl": {"features": 4, "steps": 3, "epochs": 2},
    "fedavgm": {},
    "fedyogi": {"lr": 0.01},
    "fedadagrad": {"lr": 0.01},
}
SLOW = {"bsm": {}, "fedrs": {}, "feddecorr": {}}


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    take_identity(monkeypatch)


def recipe_of(tmp_path, name):
    data = {"name": "npz", "path": str(tmp_path / "small.npz"), "partition": SKEW}
    method = {"name": name, "options": (METHODS | SLOW)[name]}
    recipe = small_recipe(tmp_path, data=data, method=method, rounds={"number": 2})
    if name == "clip2fl":
        file = str(tmp_path / "teacher.npz")
        loaded = load_dataset(Source("npz", path=tmp_path / "small.npz"))
        logits = np.random.default_rng(1).normal(size=(len(loaded.train), 3))
        save_teacher(file, loaded, logits, np.eye(3))
        recipe.method.options.update(teacher=file, prototypes=file)
    return recipe


@pytest.mark.parametrize(
    "name", [*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_recipe_gives_the_inline_engines_bits(tmp_path, name):
    recipe = recipe_of(tmp_path, name)
    inline, inline_records = finish(recipe, tmp_path / "inline")
    flower, flower_records = flower_run(recipe, tmp_path / "flower")
    assert flower == inline
    assert without_seconds(flower_records) == without_seconds(inline_records)
