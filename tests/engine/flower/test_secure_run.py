"""Private runs on Flower: the bits of the simulated ones, whoever goes away, and nothing shows."""

import pytest

from engine.flower.loopback import take_identity
from engine.flower.secure_grid import enrolled, open_grid, private_recipe, private_run
from small_run import finish, without_seconds


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    take_identity(monkeypatch)


@pytest.mark.parametrize("method", ["fedavg", "fedbb", "fednova", "moon+fedbb"])
def test_a_private_run_gives_the_bits_of_the_simulated_one(method, tmp_path):
    recipe = private_recipe(tmp_path, method={"name": method})
    simulated, records = finish(recipe, tmp_path / "simulated")
    federation = enrolled(recipe, tmp_path)
    summary, ours = private_run(recipe, tmp_path / "flower", federation)
    assert summary == simulated
    assert without_seconds(ours) == without_seconds(records)
