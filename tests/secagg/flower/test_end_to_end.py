"""A private recipe across real nodes: every stage in a process of its own, the simulated bits."""

import pytest

from fedbb.report.audit import audit_run
from fedbb.runs.folder import RunFolder
from fedbb.secagg.audit import AuditFile
from fedbb.secagg.flower.enrolment import enrol, keys_for
from helpers.flower_runs import start
from helpers.secagg_grid import private_recipe
from helpers.small_run import finish, without_seconds

# Thirteen messages to each site, each with a process of its own: a minute on an idle machine.
PATIENCE = 1200

pytestmark = [
    pytest.mark.flower,
    pytest.mark.timeout(PATIENCE + 200),
    pytest.mark.usefixtures("_unenrolled"),
]


def test_a_private_recipe_gives_the_simulated_runs_bits(federation, tmp_path):
    # Label counts before round 1 and two sums in the round: every kind of sum that changes a model.
    adjusted = {"logit_adjustment": True, "bootstrap": 10}
    method = {"name": "fedir+lda-head"}
    rounds = {"number": 1}
    recipe = private_recipe(tmp_path, method=method, rounds=rounds, evaluation=adjusted)
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


@pytest.mark.slow
def test_differential_privacy_on_real_nodes_draws_its_noise_at_the_sites(federation, tmp_path):
    dp = {"clip": 0.5, "noise": 1.0}
    recipe = private_recipe(tmp_path, rounds={"number": 2}, dp=dp, method={"name": "fedavg"})
    enrol(federation.folder, recipe)
    path = tmp_path / "flower"
    run = start(federation, recipe, path, **keys_for(federation.folder, recipe))
    finish(recipe, tmp_path / "simulated")
    state = federation.wait_for(run, PATIENCE)
    assert state.status == "finished:completed", (state, federation.logs("superlink")[-3000:])
    ours, theirs = (AuditFile.read(tmp_path / name) for name in ("flower", "simulated"))
    assert ours.content["dp"] == theirs.content["dp"] | {"simulated": False}
    digests = [audit.content["rounds"][0]["sha256"] for audit in (ours, theirs)]
    assert digests[0] != digests[1]  # secret noise, not that of the seed
