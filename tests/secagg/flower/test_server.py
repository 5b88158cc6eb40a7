"""Private runs on Flower: the bits of the simulated ones, also when sites leave and return."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedbb.data.transforms import channel_statistics
from fedbb.errors import QuorumError, RunError
from fedbb.flower.app.engine import pool_scores
from fedbb.flower.app.settings import read_site_settings
from fedbb.flower.app.site import open_site
from fedbb.inference.model import load_model
from fedbb.recipes.reader import make_recipe
from fedbb.report.audit import audit_run
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.secagg.flower import server as secure_run
from fedbb.secagg.flower.server import SiteTransport
from fedbb.secagg.flower.site import report_number
from helpers.cover import few
from helpers.flower_loopback import changing, inline_without, take_identity, with_defense
from helpers.secagg_grid import enrolled, open_grid, private_recipe, private_run, start
from helpers.small_run import finish, without_seconds, write_npz

STAGES = ("keys", "shares", "masked", "agree", "unmask")


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    take_identity(monkeypatch)


def short(folder, clients=4, **changes):
    """A recipe of one round in which a lost answer is not waited for."""
    recipe = private_recipe(folder, clients, **{"rounds": {"number": 1}, **changes})
    return with_defense(recipe, deadline=0.1)


def final_state(path):
    return load_checkpoint(path / "final.safetensors").state


def is_close(one, two):
    return all(
        torch.allclose(tensor.double(), two.params[name].double(), rtol=0, atol=1e-6)
        for name, tensor in one.params.items()
    )


@pytest.mark.parametrize(
    ("method", "evaluation"),
    few(
        [
            ("fedavg", {"logit_adjustment": 0.5, "bootstrap": 10}),
            ("fedbb", {}),
            ("fednova", {}),
            ("moon+fedbb", {}),
            ("scaffold", {}),
            ("fedir", {}),
            ("fedbb+lda-head", {}),
            pytest.param("ccvr", {}, marks=pytest.mark.slow),
        ],
        3,
    ),
)
def test_a_private_run_gives_the_bits_of_the_simulated_one(method, evaluation, tmp_path):
    recipe = private_recipe(tmp_path, method={"name": method}, evaluation=evaluation)
    simulated, records = finish(recipe, tmp_path / "simulated")
    federation = enrolled(recipe, tmp_path)
    summary, ours = private_run(recipe, tmp_path / "flower", federation)
    assert summary == simulated
    assert without_seconds(ours) == without_seconds(records)
    scores = [RunFolder(tmp_path / n).read_json("scores.json") for n in ("flower", "simulated")]
    assert scores[0] == scores[1]


def test_scores_on_the_sites_own_test_data_leave_as_a_sum_only(tmp_path):
    recipe = private_recipe(tmp_path, rounds={"number": 2}, evaluation={"bootstrap": 10})
    data = recipe.data.model_copy(update={"own_test": 0.3})
    recipe = recipe.model_copy(update={"data": data})
    finish(recipe, tmp_path / "simulated")
    federation = enrolled(recipe, tmp_path)
    grid = open_grid(recipe, federation)
    private_run(recipe, tmp_path / "flower", federation, grid)
    ours, theirs = (
        RunFolder(tmp_path / name).read_json("scores.json") for name in ("flower", "simulated")
    )
    assert ours == theirs
    assert ours["final"]["sites"] == []
    assert ours["final"]["site_sums"][0]["sites"] == 3
    # Nothing but the stages of secure sums left a site.
    stages = {"query.number", "commit", *STAGES, "confirm"}
    assert {passed.stage for passed in grid.seen} == stages


def normalized(recipe):
    data = recipe.data.model_copy(update={"normalize": "federated"})
    return recipe.model_copy(update={"data": data})


def test_inputs_are_normalized_by_a_secure_sum_as_in_the_simulation(tmp_path):
    recipe = normalized(private_recipe(tmp_path, rounds={"number": 1}))
    simulated, _ = finish(recipe, tmp_path / "simulated")
    summary, _ = private_run(recipe, tmp_path / "flower", enrolled(recipe, tmp_path))
    assert summary == simulated
    ours, theirs = (load_model(tmp_path / name).info for name in ("flower", "simulated"))
    assert (ours.mean, ours.std) == (theirs.mean, theirs.std)


def test_sites_with_data_of_their_own_normalize_by_the_sum_over_all_of_them(tmp_path):
    recipe = private_recipe(tmp_path, rounds={"number": 1})
    data = {"name": "npz", "normalize": "federated"}
    recipe = make_recipe(recipe.model_dump(mode="json") | {"data": data})
    federation = enrolled(recipe, tmp_path)
    grid, images = open_grid(recipe, federation), []
    for client, node in enumerate(grid.nodes.values()):
        path = write_npz(tmp_path / f"site{client}.npz", 24 + 8 * client)
        with np.load(path) as own:
            images.append(own["images"][own["split"] == "train"] // (client + 1))
            np.savez(path, **{**own, "images": own["images"] // (client + 1)})
        node.config |= {"data": str(path), "whole": True}
    private_run(recipe, tmp_path / "flower", federation, grid, score="sites")
    mean, std = channel_statistics(np.concatenate(images)[:, None])
    info = load_model(tmp_path / "flower").info
    assert info.mean == pytest.approx(mean, rel=1e-12)
    assert info.std == pytest.approx(std, rel=1e-12)
    told = RunFolder(tmp_path / "flower").read_json("audit.json")["statistics"]
    assert told["samples"] == sum(len(part) for part in images)


def test_statistics_under_bfv_give_the_same_bits(tmp_path):
    pytest.importorskip("tenseal")
    recipe = private_recipe(tmp_path, privacy="bfv", rounds={"number": 1})
    masked = recipe.model_copy(update={"privacy": "masked"})
    simulated, _ = finish(masked, tmp_path / "simulated")
    summary, _ = private_run(recipe, tmp_path / "flower", enrolled(recipe, tmp_path))
    assert summary == simulated
    assert audit_run(tmp_path / "flower").privacy == "bfv"


@pytest.mark.parametrize("stage", few(STAGES, 2))
def test_whoever_goes_away_in_a_round_is_in_the_sum_or_not_and_the_sum_is_right(stage, tmp_path):
    recipe = short(tmp_path)
    federation = enrolled(recipe, tmp_path, 4)
    grid = open_grid(recipe, federation)
    grid.lost[stage, 2, 1] = 1
    _, (record,) = private_run(recipe, tmp_path / "flower", federation, grid)
    counted = stage in ("agree", "unmask")
    gone = [] if counted else [{"client": 2, "reason": f"gave no answer in stage {stage}"}]
    assert record["absent"] == gone
    missing = () if counted else {(2, 1)}
    (theirs,) = inline_without(recipe.model_copy(update={"privacy": "none"}), missing)
    assert is_close(final_state(tmp_path / "flower"), theirs)


@pytest.mark.parametrize("stage", few(["commit", *STAGES, "confirm"], 2))
def test_whoever_goes_away_before_round_1_stays_out_unless_it_is_in_the_sums(stage, tmp_path):
    recipe = short(tmp_path)
    federation = enrolled(recipe, tmp_path, 4)
    grid = open_grid(recipe, federation)
    grid.lost[stage, 1, 0] = 1
    _, (record,) = private_run(recipe, tmp_path / "flower", federation, grid)
    counted = stage in ("agree", "unmask")
    assert [client["client"] for client in record["clients"]] == (
        [0, 1, 2, 3] if counted else [0, 2, 3]
    )
    told = json.loads((tmp_path / "flower" / "audit.json").read_text())["statistics"]
    in_the_sum = counted or stage == "confirm"
    assert told["clients"] == ([0, 1, 2, 3] if in_the_sum else [0, 2, 3])
    if in_the_sum:
        assert told["samples"] == 60


@pytest.mark.slow
def test_a_run_that_too_few_take_part_in_stops_and_goes_on_later_to_the_same_bits(tmp_path):
    recipe = with_defense(private_recipe(tmp_path), deadline=0.1, attempts=2)
    simulated, _ = finish(recipe, tmp_path / "simulated")
    federation = enrolled(recipe, tmp_path)
    grid = open_grid(recipe, federation)
    grid.lost["masked", 1, 2] = 2
    with pytest.raises(QuorumError, match=r"round 2: .*after 2 attempts; finished rounds are kept"):
        private_run(recipe, tmp_path / "flower", federation, grid)
    assert len(RunFolder(tmp_path / "flower").records()) == 1
    summary, _ = private_run(recipe, tmp_path / "flower", federation, resume=True)
    assert summary == simulated


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    recipe = private_recipe(tmp_path, method={"name": "moon+fedbb"})
    simulated, records = finish(recipe, tmp_path / "simulated")
    federation = enrolled(recipe, tmp_path)
    run = start(recipe, tmp_path / "flower", federation)
    next(run)
    run.close()
    summary, later = private_run(recipe, tmp_path / "flower", federation, resume=True)
    assert summary == simulated
    assert without_seconds(later) == without_seconds(records)[1:]


def test_a_round_that_was_seen_and_not_saved_is_made_again_to_the_bit(tmp_path, monkeypatch):
    recipe = private_recipe(tmp_path, rounds={"number": 1})
    simulated, _ = finish(recipe, tmp_path / "simulated")
    federation = enrolled(recipe, tmp_path)

    def crash(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "commit", crash)
        with pytest.raises(KeyboardInterrupt):
            private_run(recipe, tmp_path / "flower", federation)
    summary, _ = private_run(recipe, tmp_path / "flower", federation, resume=True)
    assert summary == simulated
    seen = RunFolder(tmp_path / "flower").read_json("audit.json")["rounds"]
    assert [entry["round"] for entry in seen] == [1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "stage",
    [*(pytest.param(stage, marks=pytest.mark.slow) for stage in ("keys", "masked")), "unmask"],
)
def test_a_server_killed_in_the_second_sum_of_a_round_goes_on_to_the_same_bits(
    stage, tmp_path, monkeypatch
):
    recipe = private_recipe(tmp_path, rounds={"number": 1}, method={"name": "fedavg+lda-head"})
    simulated, _ = finish(recipe, tmp_path / "simulated")
    federation, honest = enrolled(recipe, tmp_path), SiteTransport.exchange

    def killed(self, asked, messages):
        if self.what == "statistics of round 1" and asked == stage:
            raise KeyboardInterrupt
        return honest(self, asked, messages)

    with monkeypatch.context() as patch:
        patch.setattr(SiteTransport, "exchange", killed)
        with pytest.raises(KeyboardInterrupt):
            private_run(recipe, tmp_path / "flower", federation)
    summary, _ = private_run(recipe, tmp_path / "flower", federation, resume=True)
    assert summary == simulated
    seen = RunFolder(tmp_path / "flower").read_json("audit.json")
    assert [entry["round"] for entry in (*seen["rounds"], *seen["measured"])] == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("away", [(), (3,)])
def test_a_set_up_that_was_cut_short_sums_no_other_statistics(away, tmp_path, monkeypatch):
    recipe = with_defense(short(tmp_path), attempts=1)
    federation, path = enrolled(recipe, tmp_path, 4), tmp_path / "flower"

    def crash(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(secure_run, "describe_private", crash)
        with pytest.raises(KeyboardInterrupt):
            private_run(recipe, path, federation)
    name = RunFolder(path).read_json("cards.json")["run"]
    grid = open_grid(recipe, federation)
    grid.lost.update({("commit", client, 0): 1 for client in away})
    if away:
        # The sums over 0, 1, 2 and those over all would tell client 3's numbers.
        with pytest.raises(QuorumError, match=r"statistics: .* nothing was revealed"):
            private_run(recipe, path, federation, grid)
    else:
        private_run(recipe, path, federation, grid)
        assert RunFolder(path).read_json("cards.json")["run"] == name


@pytest.mark.slow
def test_whoever_is_not_in_a_sum_goes_on_with_what_it_remembered_before(tmp_path):
    recipe = short(tmp_path, method={"name": "moon+fedbb"}, rounds={"number": 2})
    federation = enrolled(recipe, tmp_path, 4)
    grid = open_grid(recipe, federation)
    grid.lost["masked", 2, 1] = 1
    private_run(recipe, tmp_path / "flower", federation, grid)
    orders = [passed for passed in grid.seen if (passed.way, passed.stage) == ("to", "masked")]
    for passed in orders[-4:]:
        facts = passed.content["facts"]
        assert dict(zip(facts["clients"], facts["since"], strict=True)) == {0: 1, 1: 1, 3: 1}


def test_a_site_that_tells_more_than_its_number_is_left_out(tmp_path):
    recipe = private_recipe(tmp_path)
    federation = enrolled(recipe, tmp_path)
    grid = open_grid(recipe, federation)
    grid.faults[1, 0] = changing(lambda content: content["facts"].__setitem__("samples", 20))
    with pytest.raises(RunError, match=r"still missing: 1 .*reports a size, which a private run"):
        private_run(recipe, tmp_path / "flower", federation, grid)


def test_an_audit_tells_what_the_server_of_such_a_run_saw(tmp_path):
    recipe = private_recipe(tmp_path)
    private_run(recipe, tmp_path / "flower", enrolled(recipe, tmp_path))
    audit = audit_run(tmp_path / "flower")
    told = {(seen.whose, seen.what) for seen in audit.seen}
    assert ("3 clients together", "samples") in told
    assert not any(what in ("model", "dispersion R", "steps") for _, what in told)
    assert any("No client's weight" in text for text in audit.follows)


def test_a_run_goes_on_only_under_its_own_roster(tmp_path):
    recipe = private_recipe(tmp_path)
    run = start(recipe, tmp_path / "flower", enrolled(recipe, tmp_path))
    next(run)
    run.close()
    other = enrolled(recipe, tmp_path / "other")
    with pytest.raises(RunError, match="begun under another roster"):
        private_run(recipe, tmp_path / "flower", other, resume=True)


@pytest.mark.parametrize("validation", few([0.0, 0.2], 1))
def test_sites_score_on_their_own_data_and_the_server_sees_what_is_pooled(validation, tmp_path):
    recipe = private_recipe(tmp_path)
    data = recipe.data.model_copy(update={"validation": validation})
    recipe = recipe.model_copy(update={"data": data})
    federation = enrolled(recipe, tmp_path)
    grid = open_grid(recipe, federation)
    private_run(recipe, tmp_path / "flower", federation, grid, score="sites")
    assert {passed.stage for passed in grid.seen} == {"query.number", "commit", *STAGES, "confirm"}
    state = final_state(tmp_path / "flower")
    settings = [read_site_settings(site.node_config()) for site in federation.sites()]
    theirs = [open_site(recipe, each).score(state) for each in settings]
    pooled = pool_scores(theirs, open_site(recipe, settings[0]).dataset.task)
    found = RunFolder(tmp_path / "flower").records()[-1]["scores"]
    assert found.keys() == pooled.keys() == ({"test", "validation"} if validation else {"test"})
    for name, scores in pooled.items():
        plain = scores.as_json()
        assert found[name]["samples"] == plain["samples"]
        assert found[name]["defined"] == plain["defined"]
        assert found[name]["macro"] == pytest.approx(plain["macro"], abs=1e-6)
    seen = RunFolder(tmp_path / "flower").read_json("audit.json")["scores"]
    assert [entry["round"] for entry in seen] == [1, 2]
    assert seen[0]["samples"]["test"] == 60  # all three have the whole test data here
    told = [value for value in audit_run(tmp_path / "flower").seen if "scores" in value.what]
    assert {value.whose for value in told} == {"3 clients together"}
    # The sites hold parts of one data set, so its statistics tell nothing of any of them.
    assert load_model(tmp_path / "flower").info.mean == open_site(recipe, settings[0]).dataset.mean


def test_a_site_with_data_of_its_own_does_not_tell_its_statistics(tmp_path):
    recipe = private_recipe(tmp_path)
    settings = read_site_settings(enrolled(recipe, tmp_path).sites()[0].node_config())
    for whole, told in ((False, {"mean", "std"}), (True, set())):
        form = report_number(recipe, replace(settings, whole=whole))["outline"]
        assert {"mean", "std"} & set(form) == told


@pytest.mark.slow
def test_a_run_scored_by_sites_goes_on_to_the_same_bits(tmp_path):
    recipe = private_recipe(tmp_path)
    federation = enrolled(recipe, tmp_path)
    whole, _ = private_run(recipe, tmp_path / "whole", federation, score="sites")
    grid = open_grid(recipe, federation, **{"allowed-private-runs": 2})
    run = start(recipe, tmp_path / "parts", federation, grid, score="sites")
    next(run)
    run.close()
    parts, _ = private_run(recipe, tmp_path / "parts", federation, grid, score="sites", resume=True)
    assert parts == whole


def test_pooled_scores_over_changing_groups_are_refused_by_server_and_sites(
    tmp_path, monkeypatch, caplog
):
    recipe = private_recipe(tmp_path, clients=4, rounds={"number": 1})
    federation = enrolled(recipe, tmp_path, 4)
    with pytest.raises(RunError, match=r'score = "sites" in a private run: .*reveal_class_counts'):
        private_run(recipe, tmp_path / "honest", federation, score="sites")
    assert not RunFolder(tmp_path / "honest").is_run()
    # A lying server asks for the sum all the same.
    monkeypatch.setattr("fedbb.flower.app.server.may_difference", lambda *recipe: False)
    with pytest.raises(QuorumError, match="scoring of round 1"):
        private_run(recipe, tmp_path / "lying", federation, score="sites")
    assert "reveals which classes a site's test data has" in caplog.text


@pytest.mark.slow
def test_sites_score_over_changing_groups_if_they_agreed_to_it(tmp_path):
    recipe = private_recipe(
        tmp_path, clients=4, rounds={"number": 1}, secure={"reveal_class_counts": True}
    )
    private_run(recipe, tmp_path / "flower", enrolled(recipe, tmp_path, 4), score="sites")
    assert RunFolder(tmp_path / "flower").records()[-1]["scores"]["test"]["samples"] == 80
