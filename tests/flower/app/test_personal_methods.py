"""Methods whose clients have models of their own, on Flower: the bits of the inline engine."""

import pytest

from fedbb.errors import FedbbError
from fedbb.runs.folder import RunFolder
from helpers.cover import few
from helpers.flower_loopback import flower_run, take_identity
from helpers.small_run import finish, small_recipe, without_seconds

SKEW = {"kind": "label-skew", "clients": 3, "concentration": 0.5, "min_samples": 4}
METHODS = {
    "fedper": {},
    "ditto": {"lam": 0.5},
    "isfl": {"probe": 6},
    "pfedla": {"width": 6, "hn_lr": 0.1},
    "ripfl": {},
}
SLOW = {"local": {}, "fedrep": {}, "fedbn": {}}


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    take_identity(monkeypatch)


def recipe_of(tmp_path, name, **changes):
    data = {"name": "npz", "path": str(tmp_path / "small.npz"), "partition": SKEW, "own_test": 0.3}
    method = {"name": name, "options": (METHODS | SLOW).get(name, {})}
    rounds = {"number": 3, "participation": 0.7}
    model = {"name": "resnet11"} if name == "fedbn" else {"name": "small-cnn"}
    values = {"data": data, "method": method, "rounds": rounds, "model": model, **changes}
    return small_recipe(tmp_path, **values)


@pytest.mark.parametrize(
    "name", few([*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)], 3)
)
def test_a_recipe_gives_the_inline_engines_bits(tmp_path, name):
    recipe = recipe_of(tmp_path, name)
    inline, inline_records = finish(recipe, tmp_path / "inline")
    flower, flower_records = flower_run(recipe, tmp_path / "flower")
    assert flower == inline
    assert without_seconds(flower_records) == without_seconds(inline_records)
    sites = [
        RunFolder(tmp_path / each).read_json("scores.json")["final"]["sites"]
        for each in ("inline", "flower")
    ]
    assert sites[0] == sites[1]


def test_a_network_without_the_part_is_refused_before_anything_is_written(tmp_path):
    recipe = recipe_of(tmp_path, "fedbn", model={"name": "small-cnn"})
    with pytest.raises(FedbbError, match="the batch normalization stays with the clients"):
        flower_run(recipe, tmp_path / "flower")
    assert not (tmp_path / "flower").exists()
