"""A site opens its own data, does its client's work, and tells nothing that it should not."""

from dataclasses import replace

import pytest
from flwr.app import Context, Message, RecordDict

from fedbb.errors import DataError, RunError
from fedbb.flower.app.client import app
from fedbb.flower.app.serde import TrainRequest, pack_state, pack_train_request
from fedbb.flower.app.settings import SiteSettings
from fedbb.flower.app.site import (
    ClientStateRecords,
    dataset_of,
    open_client_state,
    open_site,
    outline_of,
)
from fedbb.records import ClientState
from fedbb.runs.federation import prepare
from fedbb.runs.runtime import network_of
from fedbb.simulation.inline import make_client_infos
from fedbb.state import digest, snapshot
from fedbb.training.config import TrainJob
from helpers.flower_loopback import open_loopback, take_identity
from helpers.small_run import small_recipe, write_npz
from helpers.toy import equal_states, toy_network


@pytest.fixture
def recipe(tmp_path):
    return small_recipe(tmp_path, method={"name": "moon+fedbb"})


def test_the_card_is_the_one_a_simulation_makes(recipe):
    site = open_site(recipe, SiteSettings(1))
    infos = make_client_infos(prepare(recipe).clients, site.method.weighting)
    assert site.info() == infos[1]


def test_all_of_its_data_is_its_own_if_it_says_so(recipe, tmp_path):
    own = write_npz(tmp_path / "own.npz", samples=40)
    site = open_site(recipe, SiteSettings(7, data=str(own), whole=True))
    assert site.client == 7
    assert len(site.train_data) == 30
    assert len(open_site(recipe, SiteSettings(2, data=str(own))).train_data) == 10


def test_a_number_that_the_partition_does_not_have_is_refused(recipe):
    with pytest.raises(RunError, match=r"client 3, and the recipe divides the data among 3.*whole"):
        open_site(recipe, SiteSettings(3))


def test_a_path_without_data_is_refused(recipe, tmp_path):
    with pytest.raises(DataError):
        open_site(recipe, SiteSettings(0, data=str(tmp_path / "none.npz")))


def test_a_network_follows_from_the_outline_alone(recipe):
    site = open_site(recipe, SiteSettings(0))
    bare = dataset_of(outline_of(site.dataset))
    ours, theirs = (
        snapshot(network_of(recipe, site.method, data)) for data in (bare, site.dataset)
    )
    assert digest(ours) == digest(theirs)


def memories(tmp_path):
    return {
        "node": open_client_state(None, "a", RecordDict()),
        "folder": open_client_state(tmp_path, "a", {}),
    }


@pytest.mark.parametrize("kind", ["node", "folder"])
def test_a_memory_comes_back_and_old_ones_are_forgotten(kind, tmp_path):
    store, state = memories(tmp_path)[kind], snapshot(toy_network())
    kept = ClientState(state, {"momentum": {"x": state.params["head.bias"].clone()}})
    for number in (1, 2, 5):
        store.save(0, number, kept)
        store.save(3, number, kept)
    store.keep_only(0, {5, 2})
    back = store.load(0, 5)
    assert equal_states(back.model, state)
    assert list(back.optimizer["momentum"]) == ["x"]
    store.load(0, 2)
    store.load(3, 1)
    with pytest.raises(RunError):
        store.load(0, 1)


def test_a_memory_without_a_model_comes_back_as_such(tmp_path):
    for store in memories(tmp_path).values():
        bias = snapshot(toy_network()).params["head.bias"]
        store.save(0, 1, ClientState(None, {"momentum": {"x": bias}}))
        assert store.load(0, 1).model is None


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "../a", "x" * 300, "a\nb"])
def test_a_server_cannot_choose_another_folder(name, tmp_path):
    with pytest.raises(RunError, match="not valid as the name of a folder"):
        open_client_state(tmp_path / "state", name, RecordDict())
    assert not (tmp_path / "state").exists()


def test_training_again_from_the_named_memory_gives_the_same_bits(recipe):
    site, store = open_site(recipe, SiteSettings(0)), ClientStateRecords(RecordDict())
    state = snapshot(network_of(recipe, site.method, site.dataset))
    order = TrainRequest(TrainJob(0, 1, 0, state), 1, "run", None)
    site.train(order, store)
    second = TrainRequest(TrainJob(0, 2, 0, state), 1, "run", 1)
    once, again = (site.train(replace(second, attempt=k), store) for k in (1, 2))
    assert digest(once.update.state) == digest(again.update.state)
    assert once.kept
    assert not once.lost
    assert sorted(store.records) == ["state-0-1", "state-0-2"]


def test_a_job_for_another_client_is_refused(recipe):
    site = open_site(recipe, SiteSettings(0))
    state = snapshot(network_of(recipe, site.method, site.dataset))
    with pytest.raises(RunError, match="this site is client 0, and the job is for 1"):
        site.train(
            TrainRequest(TrainJob(1, 1, 0, state), 1, "run", None), ClientStateRecords(RecordDict())
        )


@pytest.mark.parametrize(
    ("node_config", "run_config", "words"),
    [
        ({}, None, "RunError: node config: client is missing"),
        ({"client": 0, "data": "/secret/x.npz"}, None, "DataError: its data cannot be used"),
        ({"client": 0}, {}, "RecipeError: run config: recipe is missing"),
    ],
)
def test_errors_come_back_as_words_and_without_data(
    node_config, run_config, words, recipe, monkeypatch
):
    take_identity(monkeypatch)
    config = {"recipe": recipe.model_dump_json()} if run_config is None else run_config
    message = Message(RecordDict(), 5, "query.info")
    reply = app(message, Context(1, 5, node_config, RecordDict(), config))
    assert reply.has_error()
    assert reply.error.reason.startswith(words)
    assert "secret" not in reply.error.reason


def test_an_error_nobody_foresaw_tells_only_its_kind(recipe, monkeypatch):
    take_identity(monkeypatch)

    def fail(*arguments):
        raise ZeroDivisionError("patient 17")

    monkeypatch.setattr("fedbb.flower.app.client.open_site", fail)
    config = {"recipe": recipe.model_dump_json()}
    reply = app(
        Message(RecordDict(), 5, "evaluate"), Context(1, 5, {"client": 0}, RecordDict(), config)
    )
    assert reply.error.reason == "ZeroDivisionError; details are in the site's own log"


def test_a_state_that_does_not_fit_the_network_is_an_error_of_the_site(recipe, monkeypatch):
    take_identity(monkeypatch)
    other = snapshot(toy_network())
    content = pack_train_request(
        TrainRequest(TrainJob(0, 1, 0, other), 1, "run", None), pack_state(other)
    )
    config = {"recipe": recipe.model_dump_json()}
    reply = app(Message(content, 5, "train"), Context(1, 5, {"client": 0}, RecordDict(), config))
    assert reply.error.reason.startswith("RuntimeError")


def test_nothing_but_the_card_is_told_before_the_first_round(recipe, monkeypatch):
    take_identity(monkeypatch)
    grid = open_loopback(recipe)
    reply = grid._answer(1000, grid.nodes[1000], Message(RecordDict(), 1000, "query.info"))
    assert set(reply.content) == {"facts", "outline"}
    assert set(reply.content["facts"]) == {"client", "samples", "dispersion"}
    form = {"data", "task", "classes", "channels", "versions", "shape", "dtype", "mean", "std"}
    assert set(reply.content["outline"]) == form
