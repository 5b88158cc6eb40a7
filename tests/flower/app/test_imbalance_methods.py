"""Methods against class imbalance on Flower give the bits of the inline engine."""

import pytest

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
}


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    take_identity(monkeypatch)


def recipe_of(tmp_path, name):
    data = {"name": "npz", "path": str(tmp_path / "small.npz"), "partition": SKEW}
    method = {"name": name, "options": METHODS[name]}
    return small_recipe(tmp_path, data=data, method=method, rounds={"number": 2})


@pytest.mark.parametrize("name", METHODS)
def test_a_recipe_gives_the_inline_engines_bits(tmp_path, name):
    recipe = recipe_of(tmp_path, name)
    inline, inline_records = finish(recipe, tmp_path / "inline")
    flower, flower_records = flower_run(recipe, tmp_path / "flower")
    assert flower == inline
    assert without_seconds(flower_records) == without_seconds(inline_records)
