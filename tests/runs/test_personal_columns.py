"""`personalize` on runs whose clients have models of their own: columns, laws and options."""

import json

import numpy as np
import pytest

import fedbb as package
from fedbb.errors import RecipeError
from fedbb.runs.final_scores import read_scores
from fedbb.runs.folder import RunFolder
from fedbb.runs.personal import personalize
from fedbb.training.config import LRSchedule
from helpers.commands import fedbb
from helpers.small_run import finish, small_recipe

SKEW = {"kind": "label-skew", "clients": 3, "concentration": 0.5, "min_samples": 4}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("columns")


@pytest.fixture(scope="module")
def runs(place):
    found = {}
    for name in ("fedavg", "ditto", "fedper"):
        data = {"name": "npz", "path": str(place / "small.npz"), "partition": SKEW}
        data["own_test"] = 0.3
        rounds = {"number": 2, "participation": 0.7}
        recipe = small_recipe(place, data=data, method={"name": name}, rounds=rounds)
        finish(recipe, place / name)
        found[name] = place / name
    return found


def test_columns_that_a_run_does_not_have_are_left_out(runs):
    columns = {
        name: {key for key, value in personalize(path)[0].as_json().items() if value is not None}
        for name, path in runs.items()
    }
    assert columns["ditto"] - columns["fedavg"] == {"personal"}
    assert columns["fedavg"] >= {"shared", "adapted", "tested"}
    assert "shared" not in columns["fedper"]
    assert columns["fedper"] >= {"personal", "adapted"}


def test_the_shared_columns_of_ditto_are_fedavgs(runs):
    one, two = (personalize(runs[name]) for name in ("fedavg", "ditto"))
    assert [row.shared for row in one] == [row.shared for row in two]
    assert [row.adapted for row in one] == [row.adapted for row in two]
    assert [row.personal for row in two] != [row.shared for row in two]


def test_own_models_score_as_at_the_sites_and_by_samples_as_pooled(runs):
    rows = personalize(runs["fedper"])
    sites = {site.client: site for site in read_scores(RunFolder(runs["fedper"]))["final"].sites}
    for row in rows:
        assert row.personal == pytest.approx(sites[row.client].macro["accuracy"])
        assert row.tested == sites[row.client].samples
    right = sum(site.macro["accuracy"] * site.samples for site in sites.values())
    pooled = right / sum(site.samples for site in sites.values())
    weights = np.array([row.tested for row in rows])
    assert np.array([row.personal for row in rows]) @ weights / weights.sum() == pytest.approx(
        pooled
    )


def test_a_clients_own_score_does_not_depend_on_anothers_state(runs, place):
    before = personalize(runs["fedper"])
    folder = RunFolder(runs["fedper"])
    last = folder.latest()
    client = min(last.state_rounds)
    model = package.load_model(runs["fedper"], client=client)
    for other, number in last.state_rounds.items():
        if other != client:
            (
                folder.path / "memories" / f"client-{other:06d}-round-{number:06d}.safetensors"
            ).rename(place / f"away-{other}")
    again = package.load_model(runs["fedper"], client=client)
    for one, two in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        assert one.equal(two)
    for other, number in last.state_rounds.items():
        if other != client:
            (place / f"away-{other}").rename(
                folder.path / "memories" / f"client-{other:06d}-round-{number:06d}.safetensors"
            )
    assert personalize(runs["fedper"]) == before


def test_a_part_may_be_trained_and_a_pull_may_hold(runs):
    plain, head, held = (
        [row.adapted for row in personalize(runs["fedavg"], epochs=3, **options)]
        for options in ({}, {"train": "head"}, {"lam": 19.0})
    )
    shared = [row.shared for row in personalize(runs["fedavg"])]
    assert plain != head
    gaps = [sum(abs(a - b) for a, b in zip(found, shared, strict=True)) for found in (plain, held)]
    assert gaps[1] <= gaps[0]
    with pytest.raises(RecipeError, match="the batch normalization has no trained parameter"):
        personalize(runs["fedavg"], train="batch-norms")
    with pytest.raises(RecipeError, match="the part that stays is one of"):
        personalize(runs["fedavg"], train="body")


def test_other_metrics_need_test_data_of_the_clients(runs, place):
    rows = personalize(runs["fedavg"], metric="auroc")
    sites = {site.client: site for site in read_scores(RunFolder(runs["fedavg"]))["final"].sites}
    for row in rows:
        assert row.shared == pytest.approx(sites[row.client].macro["auroc"], nan_ok=True)
    with pytest.raises(RecipeError, match="metric 'recall' is unknown; allowed: accuracy"):
        personalize(runs["fedavg"], metric="recall")
    finish(small_recipe(place, rounds={"number": 1}), place / "mixture")
    with pytest.raises(RecipeError, match=r"f1 needs data\.own_test"):
        personalize(place / "mixture", metric="f1")


def test_the_command_shows_summaries_and_how_sure_they_are(runs, monkeypatch):
    def say(*words):
        return fedbb("personalize", runs["ditto"], *words, monkeypatch=monkeypatch)

    done = say("--alone")
    assert done.code == 0, done.err
    for title in ("own model", "mean by samples", "SD", "worst tenth", "best for", "95 % interval"):
        assert title in done.out
    found = json.loads(say("--alone", "--json").out)
    assert {one["column"] for one in found["summary"]} == {"shared", "personal", "adapted", "alone"}
    assert {one["against"] for one in found["differences"]} == {"shared"}
    refused = say("--train", "tail")
    assert refused.code == 2


def test_a_client_alone_learns_as_in_a_run_without_exchange(tmp_path):
    """It is trained at the full learning rate, though before the first round."""
    assert LRSchedule().lr(0.1, 0) == 0.1
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(240, 8)).astype(np.float32)
    labels = (inputs @ rng.normal(size=(8, 3))).argmax(axis=1)
    data = package.Dataset.from_arrays(inputs[:180], labels[:180], inputs[180:], labels[180:])
    clients = package.partition.iid(data, clients=2, seed=0)
    local = package.LocalConfig(batch_size=8, lr=0.1)
    options = {"local": local, "bootstrap": 0, "out": tmp_path / "run"}
    package.simulate(data, clients, model="linear", method="local", rounds=4, **options)
    for row in package.personalize(
        tmp_path / "run", data, clients, "linear", alone=True, workers=0
    ):
        assert row.alone == pytest.approx(row.personal, abs=0.15)
        assert row.alone > 0.6
