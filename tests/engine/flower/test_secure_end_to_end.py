"""A private recipe across real nodes: every stage in a process of its own, the simulated bits."""

import pytest

from engine.flower.real_runs import complete, start
from engine.flower.secure_grid import private_recipe
from fedbb.engine.flower.secure_enrolment import enrol, keys_for
from fedbb.report.audit import audit_run
from small_run import finish, without_seconds

pytestmark = [pytest.mark.flower, pytest.mark.timeout(600)]


def test_a_private_recipe_gives_the_simulated_runs_bits(federation, tmp_path):
    recipe = private_recipe(tmp_path, rounds={"number": 1})
    enrol(federation.folder, recipe)
    path = tmp_path / "flower"
    run = start(federation, recipe, path, **keys_for(federation.folder, recipe))
    simulated, records = finish(recipe, tmp_path / "simulated")
    summary, ours = complete(federation, run, path)
    assert summary == simulated
    assert without_seconds(ours) == without_seconds(records)
    assert audit_run(path).privacy == "masked"
