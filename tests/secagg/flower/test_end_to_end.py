"""A private recipe across real nodes: every stage in a process of its own, the simulated bits."""

import pytest

from fedbb.report.audit import audit_run
from fedbb.runs.folder import RunFolder
from fedbb.secagg.flower.enrolment import enrol, keys_for
from helpers.flower_runs import start
from helpers.secagg_grid import private_recipe
from helpers.small_run import finish, without_seconds

# Thirteen messages to each site, each with a process of its own: a minute on an idle machine.
PATIENCE = 1200

pytestmark = [pytest.mark.flower, pytest.mark.timeout(PATIENCE + 200)]


def test_a_private_recipe_gives_the_simulated_runs_bits(federation, tmp_path):
    recipe = private_recipe(tmp_path, rounds={"number": 1})
    enrol(federation.folder, recipe)
    path = tmp_path / "flower"
    run = start(federation, recipe, path, **keys_for(federation.folder, recipe))
    simulated, records = finish(recipe, tmp_path / "simulated")
    state = federation.wait_for(run, PATIENCE)
    assert state.status == "finished:completed", (state, federation.logs("superlink")[-3000:])
    folder = RunFolder(path)
    assert folder.read_json("summary.json") == simulated
    assert without_seconds(folder.records()) == without_seconds(records)
    assert audit_run(path).privacy == "masked"
