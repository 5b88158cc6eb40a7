"""Methods against class imbalance, and server optimizers, on Flower: the inline engine's bits."""

import numpy as np
import pytest

from fedbb.data import save_teacher
from fedbb.data.registry import load_dataset
from fedbb.errors import FedbbError
from fedbb.recipes.check import bind_teacher
from helpers.cover import few
from helpers.flower_loopback import flower_run, take_identity
from helpers.small_run import finish, small_recipe, without_seconds
from helpers.teachers import random_logits, teacher_options

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
    recipe.method.options.update(teacher_options(name, tmp_path / "small.npz"))
    return recipe


@pytest.mark.parametrize(
    "name", few([*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)], 5)
)
def test_a_recipe_gives_the_inline_engines_bits(tmp_path, name):
    recipe = recipe_of(tmp_path, name)
    inline, inline_records = finish(recipe, tmp_path / "inline")
    flower, flower_records = flower_run(recipe, tmp_path / "flower")
    assert flower == inline
    assert without_seconds(flower_records) == without_seconds(inline_records)


def test_a_site_with_another_teacher_file_is_refused_and_named(tmp_path):
    recipe = recipe_of(tmp_path, "clip2fl")
    bound = bind_teacher(recipe)
    assert bound.method.teacher_sha256
    data = load_dataset("npz", path=tmp_path / "small.npz")
    file = recipe.method.options["teacher"]
    save_teacher(file, data, random_logits(data, seed=1), np.eye(3))
    with pytest.raises(FedbbError, match=r"teacher\.npz is not the one of the run: its SHA-256"):
        flower_run(bound, tmp_path / "flower")
