"""A run on Flower: set up from cards alone, kept like any other run, resumed to the bit."""

import hashlib
import json
import logging

import numpy as np
import pytest
from flwr.app import Context, MetricRecord, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.superlink.grid import http_grid

from fedbb.cli.main import main as fedbb
from fedbb.data.transforms import channel_statistics
from fedbb.errors import RecipeError, ReplyError, RunError
from fedbb.flower.app import server
from fedbb.flower.app.server import serve
from fedbb.flower.app.settings import RunSettings
from fedbb.flower.app.transport import REPLY_BASE, GridTransport
from fedbb.inference.model import load_model
from fedbb.partition.registry import Rule
from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import EvaluationSpec
from fedbb.report.results import read_run
from fedbb.runs.folder import RunFolder
from fedbb.state import digest
from helpers.commands import fedbb as call
from helpers.cover import few
from helpers.digest_runs import recipe_of
from helpers.flower_loopback import (
    FIRST_NODE,
    Node,
    changing,
    flower_run,
    open_loopback,
    take_identity,
    with_defense,
)
from helpers.small_run import finish, small_recipe, without_seconds

MANY = pytest.mark.parametrize("kept", ["files", "node"])


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    take_identity(monkeypatch)


@pytest.fixture
def recipe(tmp_path):
    return small_recipe(tmp_path, rounds={"number": 2})


def moon(folder, rounds=4):
    return small_recipe(folder, method={"name": "moon+fedbb"}, rounds={"number": rounds})


def sites_of(recipe, folder, kept):
    return open_loopback(recipe, **({"state": str(folder / "state")} if kept == "files" else {}))


def begin(recipe, path, grid, rounds, **settings):
    """Run this number of rounds and stop as a crash would."""
    run = serve(GridTransport(grid, poll=0.01), RunSettings(recipe, path, wait=5.0, **settings))
    for _ in range(rounds):
        next(run)
    run.close()


@pytest.mark.parametrize("rounds", few([1, 2, 3], 1))
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(rounds, tmp_path, tally):
    recipe = moon(tmp_path)
    expected, records = finish(recipe, tmp_path / "inline")
    path, grid = tmp_path / "flower", sites_of(recipe, tmp_path, "files")
    begin(recipe, path, grid, rounds)
    # A new run of Flower: other messages, and nothing left in the nodes' own state.
    grid = sites_of(recipe, tmp_path, "files")
    summary, later = flower_run(recipe, path, grid, resume=True)
    tally.run(summary, expected, path)
    assert summary == expected
    assert without_seconds(later) == without_seconds(records)[rounds:]


@MANY
def test_memories_lie_in_the_sites_folder_or_in_the_nodes_state(kept, tmp_path):
    recipe = moon(tmp_path, rounds=3)
    expected, _ = finish(recipe, tmp_path / "inline")
    grid = sites_of(recipe, tmp_path, kept)
    summary, _ = flower_run(recipe, tmp_path / "flower", grid)
    assert summary == expected
    files = sorted(path.name for path in (tmp_path / "state").rglob("*.safetensors"))
    in_state = sum(b"state-" in node.context for node in grid.nodes.values())
    assert (len(files), in_state) == ((6, 0) if kept == "files" else (0, 3))
    if kept == "files":
        assert files[:2] == [f"client-000000-round-00000{k}.safetensors" for k in (2, 3)]
    assert list((tmp_path / "flower" / "memories").iterdir()) == []


def test_a_site_that_lost_its_memory_trains_without_and_says_so(tmp_path, caplog):
    recipe = moon(tmp_path, rounds=2)
    grid = open_loopback(recipe)

    def forget(message):
        grid.nodes[FIRST_NODE + 1].context = b""
        return [message]

    grid.faults[2, 1] = forget
    with caplog.at_level(logging.WARNING, "fedbb"):
        _, records = flower_run(recipe, tmp_path / "flower", grid)
    assert "client 1 had lost its state of round 1 and trained without" in caplog.text
    assert all(record["absent"] == [] for record in records)


def test_two_runs_of_one_recipe_do_not_share_memories(tmp_path):
    recipe = moon(tmp_path, rounds=1)
    for name in ("one", "two"):
        flower_run(recipe, tmp_path / name, sites_of(recipe, tmp_path, "files"))
    assert len(list((tmp_path / "state").glob("npz-*"))) == 2


def test_the_folder_holds_what_a_server_knows_and_no_counts(recipe, tmp_path):
    flower_run(recipe, tmp_path / "flower")
    folder = RunFolder(tmp_path / "flower")
    names = {path.name for path in folder.path.iterdir()}
    assert "partition.json" not in names
    federation, infos = folder.read_json("federation.json"), folder.read_json("cards.json")
    assert federation["positives"] is None
    assert all(client["positives"] is None for client in federation["clients"])
    assert [info["samples"] for info in infos["cards"]] == [20, 20, 20]
    assert sum(client["weight"] for client in federation["clients"]) == pytest.approx(1)
    assert federation["scored"] == {"test": 20}


def test_show_and_report_read_the_folder(recipe, tmp_path, capsys, monkeypatch):
    flower_run(recipe, tmp_path / "flower")
    assert read_run(tmp_path / "flower").summary is not None
    for command in (["show"], ["show", "--json"], ["report", "--out", str(tmp_path / "page")]):
        verb, *options = command
        monkeypatch.setattr("sys.argv", ["fedbb", verb, str(tmp_path / "flower"), *options])
        with pytest.raises(SystemExit) as ended:
            fedbb()
        assert ended.value.code in (0, None), capsys.readouterr()
    assert "3 clients" in capsys.readouterr().out


def test_a_folder_that_holds_a_run_is_only_gone_on_with_if_told(recipe, tmp_path):
    flower_run(recipe, tmp_path / "flower")
    with pytest.raises(RunError, match="already holds a run"):
        flower_run(recipe, tmp_path / "flower")
    summary, records = flower_run(recipe, tmp_path / "flower", resume=True)
    assert records == []
    assert summary["rounds"] == 2


def test_a_run_of_another_engine_or_recipe_is_not_gone_on_with(recipe, tmp_path):
    finish(recipe, tmp_path / "inline")
    with pytest.raises(RunError, match="not begun on Flower"):
        flower_run(recipe, tmp_path / "inline", resume=True)
    flower_run(recipe, tmp_path / "flower")
    with pytest.raises(RunError, match="another recipe; seed"):
        flower_run(recipe.model_copy(update={"seed": 5}), tmp_path / "flower", resume=True)
    with pytest.raises(RunError, match='begun with score = "server", not "sites"'):
        flower_run(recipe, tmp_path / "flower", resume=True, score="sites")


def test_a_resumed_run_does_without_a_site_that_stays_away(tmp_path):
    recipe = with_defense(small_recipe(tmp_path, rounds={"number": 3}), quorum=0.5)
    grid = open_loopback(recipe)
    begin(recipe, tmp_path / "flower", grid, 1)
    grid.nodes[FIRST_NODE + 2].connected = False
    _, records = flower_run(recipe, tmp_path / "flower", grid, resume=True, wait=0.1)
    assert [record["absent"][0]["reason"] for record in records] == ["not connected"] * 2


def test_a_site_whose_data_changed_stops_a_resumed_run(recipe, tmp_path):
    grid = open_loopback(recipe)
    begin(recipe, tmp_path / "flower", grid, 1)
    grid.nodes[FIRST_NODE + 1].config["whole"] = True
    with pytest.raises(RunError, match=r"client 1 has other data than when the run began: 20 samp"):
        flower_run(recipe, tmp_path / "flower", grid, resume=True)


def test_who_is_missing_is_told_after_the_wait(recipe, tmp_path):
    with pytest.raises(RunError, match=r"after 0.2 s these clients are still missing: 2$"):
        flower_run(recipe, tmp_path / "flower", open_loopback(recipe, 2), wait=0.2)
    assert not RunFolder(tmp_path / "flower").is_run()
    grid = open_loopback(recipe)
    grid.nodes[FIRST_NODE + 1].config["data"] = "/nowhere.npz"
    with pytest.raises(RunError, match=r"missing: 1 \(node 1001: DataError: its data cannot be"):
        flower_run(recipe, tmp_path / "flower", grid, wait=0.2)


def test_of_two_nodes_with_one_number_the_second_is_left_out(recipe, tmp_path):
    grid = open_loopback(recipe)
    grid.nodes[FIRST_NODE + 2].config["client"] = 0
    with pytest.raises(RunError, match=r"missing: 2 .node 1002: it says it is client 0, which"):
        flower_run(recipe, tmp_path / "flower", grid, wait=0.2)
    grid.nodes[FIRST_NODE + 3] = Node({"client": 2})
    _, records = flower_run(recipe, tmp_path / "flower", grid)
    assert not records[0].get("absent")


def key_of(node):
    return f"public key of node {node}".encode()


def with_keys(grid):
    """Return the setting that ties the keys of a grid's nodes to their client numbers."""
    return {
        hashlib.sha256(key_of(node)).hexdigest(): found.config["client"]
        for node, found in grid.nodes.items()
    }


@pytest.mark.parametrize("first", [True, False])
def test_a_site_that_claims_another_sites_number_is_refused_by_name_and_the_rest_goes_on(
    first, recipe, tmp_path, monkeypatch, caplog
):
    """A8: a registered node that says it is client 1 used to stop every run."""
    grid = open_loopback(recipe)
    honest = grid.get_nodes
    monkeypatch.setattr(
        grid,
        "get_nodes",
        lambda: [
            NodeInfo(node_id=n.node_id, last_activated_at="", public_key=key_of(n.node_id))
            for n in honest()
        ],
    )
    keys = with_keys(grid)
    hostile = 1 if first else 5000
    grid.nodes[hostile] = Node({"client": 1})
    keys[hashlib.sha256(key_of(hostile)).hexdigest()] = 9
    grid.nodes[hostile + 1] = Node({"client": 2})  # registered elsewhere, with an unknown key
    summary, records = flower_run(recipe, tmp_path / "flower", grid, node_keys=keys)
    assert not records[0].get("absent")
    assert summary == flower_run(recipe, tmp_path / "alone")[0]
    assert f"node {hostile} is left out: it says it is client 1, and its node key is" in caplog.text
    assert (
        f"node {hostile + 1} is left out: it says it is client 2, whose registered" in caplog.text
    )


def test_a_number_beyond_the_sites_is_refused(recipe, tmp_path):
    grid = open_loopback(recipe, 2)
    grid.nodes[5] = Node({"client": 7, "whole": True})
    reason = r"missing: 2 .node 5: it says it is client 7, and there are 3, from 0"
    with pytest.raises(RunError, match=reason):
        flower_run(recipe, tmp_path / "flower", grid, wait=0.2)


@pytest.mark.parametrize(
    ("name", "value"), [("samples", -1), ("samples", 1.5), ("dispersion", float("nan"))]
)
def test_a_card_that_cannot_be_true_keeps_its_node_out(name, value, recipe, tmp_path):
    grid = open_loopback(recipe)

    def lie(content):
        content["facts"] = MetricRecord({**content["facts"], name: value})

    grid.faults[1, 0] = changing(lie)
    with pytest.raises(RunError, match=f"missing: 1 .*info of client 1: {name} is"):
        flower_run(recipe, tmp_path / "flower", grid, wait=0.2)


def test_a_node_that_comes_back_with_other_data_is_left_out(tmp_path):
    recipe = small_recipe(tmp_path, rounds={"number": 2})
    grid = open_loopback(recipe)

    def move(message):
        del grid.nodes[FIRST_NODE + 1]
        grid.nodes[55] = Node({"client": 1, "whole": True})
        return [message]

    grid.faults[1, 1] = move
    _, records = flower_run(recipe, tmp_path / "flower", grid)
    assert records[1]["absent"] == [{"client": 1, "reason": "not connected"}]


def test_a_newcomer_does_not_take_the_place_of_a_client_that_is_there(tmp_path):
    recipe = small_recipe(tmp_path, rounds={"number": 2})
    expected, _ = finish(recipe, tmp_path / "inline")
    grid = open_loopback(recipe)

    def intrude(message):
        grid.nodes[5] = Node({"client": 1})
        return [message]

    grid.faults[1, 1] = intrude
    summary, _ = flower_run(recipe, tmp_path / "flower", grid)
    assert summary == expected
    assert all(client != 5 for _, client, _ in grid.asked)


def test_recipes_that_have_no_sites_are_refused(tmp_path):
    central = small_recipe(tmp_path, engine="central")
    central = central.model_copy(
        update={"data": central.data.model_copy(update={"partition": Rule()})}
    )
    with pytest.raises(RunError, match="has no sites"):
        flower_run(central, tmp_path / "flower")
    private = small_recipe(tmp_path, privacy="masked")
    with pytest.raises((RunError, RecipeError)):
        flower_run(private, tmp_path / "flower")


def write_site(path, samples, seed):
    rng = np.random.default_rng(seed)
    labels = np.arange(samples) % 3
    images = rng.integers(0, 120, (samples, 8, 8), dtype=np.uint8)
    images[np.arange(samples), labels, :] += 100
    split = np.where(np.arange(samples) % 4 < 3, "train", "test")
    np.savez(path, images=images, labels=labels, split=split)
    return str(path)


def own_data(tmp_path, **changes):
    """Return a recipe without any data of its own, and sites that have each their own file."""
    values = {
        "data": {"name": "npz", **changes},
        "method": {"name": "fedbb"},
        "local": {"batch_size": 8, "lr": 0.05},
        "rounds": {"number": 2},
    }
    recipe = make_recipe(values)
    grid = open_loopback(recipe)
    for client, node in enumerate(grid.nodes.values()):
        path = write_site(tmp_path / f"site{client}.npz", 24 + 8 * client, client)
        node.config |= {"data": path, "whole": True}
    return recipe, grid


def test_sites_with_data_of_their_own_train_and_score_without_any_at_the_server(tmp_path):
    recipe, grid = own_data(tmp_path)
    _, records = flower_run(recipe, tmp_path / "flower", grid, score="sites")
    infos = RunFolder(tmp_path / "flower").read_json("cards.json")["cards"]
    assert [info["samples"] for info in infos] == [18, 24, 30]
    scores = records[-1]["scores"]["test"]
    assert scores["samples"] == 6 + 8 + 10
    assert 0 <= scores["macro"]["accuracy"] <= 1
    assert len(scores["per_class"]["recall"]) == 3
    assert read_run(tmp_path / "flower").summary is not None


def test_sites_score_on_their_own_test_data_as_the_simulation_does(tmp_path):
    recipe = small_recipe(tmp_path, rounds={"number": 2}, evaluation={"bootstrap": 20})
    data = recipe.data.model_copy(update={"own_test": 0.25})
    recipe = recipe.model_copy(update={"data": data})
    finish(recipe, tmp_path / "inline")
    flower_run(recipe, tmp_path / "flower")
    expected, found = (RunFolder(tmp_path / name) for name in ("inline", "flower"))
    assert found.read_json("scores.json") == expected.read_json("scores.json")
    assert len(found.read_json("scores.json")["final"]["sites"]) == 3


def test_logits_are_adjusted_by_the_class_shares_that_sites_report(tmp_path):
    recipe = small_recipe(tmp_path, evaluation={"logit_adjustment": 0.5, "bootstrap": 10})
    finish(recipe, tmp_path / "inline")
    flower_run(recipe, tmp_path / "flower")
    expected, found = (RunFolder(tmp_path / name) for name in ("inline", "flower"))
    assert found.read_json("scores.json") == expected.read_json("scores.json")
    assert found.read_json("scores.json")["final"]["operating_point"]["logit_shift"]


def test_sites_report_scores_of_their_own_tests_to_a_server_without_data(tmp_path):
    recipe, grid = own_data(tmp_path, own_test=0.25)
    flower_run(recipe, tmp_path / "flower", grid, score="sites")
    final = read_run(tmp_path / "flower").scores["final"]
    assert final.test is None
    assert [site.samples for site in final.sites] == pytest.approx([4, 6, 7], abs=1)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"logit_adjustment": True}, "needs test data at the server"),
    ],
)
def test_operating_points_need_data_at_the_server(tmp_path, section, message):
    recipe = small_recipe(tmp_path, evaluation=section)
    with pytest.raises(RunError, match=message):
        flower_run(recipe, tmp_path / "flower", score="sites")
    assert not (tmp_path / "flower").exists()


def with_thresholds(folder, rule="youden"):
    recipe = recipe_of(folder, "multilabel fedbb", evaluation={"bootstrap": 20, "threshold": rule})
    data = recipe.data.model_copy(update={"own_test": 0.25, "validation": 0.3})
    return recipe.model_copy(update={"data": data})


def test_sites_score_at_the_operating_point_of_the_server(tmp_path):
    recipe = with_thresholds(tmp_path)
    finish(recipe, tmp_path / "inline")
    flower_run(recipe, tmp_path / "flower")
    expected, found = (RunFolder(tmp_path / name) for name in ("inline", "flower"))
    assert found.read_json("scores.json") == expected.read_json("scores.json")
    assert len(found.read_json("scores.json")["final"]["operating_point"]["sites"]) == 3


@pytest.mark.parametrize("rule", ["youden", {"sensitivity": 0.9}])
def test_thresholds_are_chosen_on_the_validation_data_of_the_sites(tmp_path, rule, monkeypatch):
    recipe = with_thresholds(tmp_path, rule)
    finish(recipe, tmp_path / "inline")
    flower_run(recipe, tmp_path / "flower", score="sites")
    expected, found = (read_run(tmp_path / name).scores["final"] for name in ("inline", "flower"))
    assert found.test is None
    # All sites hold the same validation data here, so that the server would choose alike.
    points = [scores.operating_point for scores in (expected, found)]
    assert points[1].thresholds == pytest.approx(points[0].thresholds, abs=0.02)
    assert [site.client for site in points[1].sites] == [0, 1, 2]
    assert points[1].sites != found.sites
    model = load_model(tmp_path / "flower")
    assert model.info.thresholds == points[1].thresholds
    shown = call("show", tmp_path / "flower", "--scores", "--sites", monkeypatch=monkeypatch)
    assert shown.code == 0, shown.err
    assert "threshold" in shown.out


def test_sites_without_validation_data_are_noticed_before_the_run_begins(tmp_path, caplog):
    recipe, grid = own_data(tmp_path)
    few = recipe.model_copy(update={"evaluation": EvaluationSpec(threshold="f1")})
    with pytest.raises(RecipeError, match=r"of 3 classes the most probable is predicted"):
        flower_run(few, tmp_path / "flower", grid, score="sites")
    recipe = recipe_of(tmp_path, "multilabel fedbb", evaluation={"threshold": "f1"})
    with pytest.raises(RunError, match="0 of 3 sites scored the model"):
        flower_run(with_defense(recipe, attempts=1), tmp_path / "flower", score="sites")
    assert "this site keeps no validation data" in caplog.text
    assert not (tmp_path / "flower" / "recipe.json").exists()


def test_the_model_of_a_run_without_any_data_at_the_server_is_loaded_and_predicts(tmp_path):
    recipe, grid = own_data(tmp_path)
    flower_run(recipe, tmp_path / "flower", grid, score="sites")
    parts = [np.load(tmp_path / f"site{client}.npz") for client in range(3)]
    images = np.concatenate([part["images"][part["split"] == "train"] for part in parts])[:, None]
    # Each site normalizes by its own statistics; outside, those of all training images hold.
    mean, std = channel_statistics(images)
    model = load_model(tmp_path / "flower")
    assert model.info.mean == pytest.approx(mean, rel=1e-12)
    assert model.info.std == pytest.approx(std, rel=1e-12)
    assert (model.info.input_shape, model.info.input_dtype) == ((1, 8, 8), "uint8")
    assert model.predict(images).sum(axis=1) == pytest.approx(np.ones(len(images)))


def test_a_run_scored_by_sites_describes_its_model_as_any_other(tmp_path):
    recipe = small_recipe(tmp_path, rounds={"number": 1})
    finish(recipe, tmp_path / "inline")
    flower_run(recipe, tmp_path / "flower", score="sites")
    inline, flower = (RunFolder(tmp_path / name) for name in ("inline", "flower"))
    # Sites do not tell the names of their files.
    assert flower.read_json("model.json") == inline.read_json("model.json") | {"data": "npz"}
    images = np.load(tmp_path / "small.npz")["images"][:, None]
    expected = load_model(inline.path).predict(images)
    np.testing.assert_array_equal(load_model(flower.path).predict(images), expected)


def test_sites_with_another_type_of_inputs_are_refused(tmp_path):
    recipe, grid = own_data(tmp_path)
    path = tmp_path / "site1.npz"
    with np.load(path) as whole:
        arrays = dict(whole)
    arrays["images"] = arrays["images"].astype(np.float32)
    np.savez(path, **arrays)
    reason = "client 1 has other data.*the type of inputs is 'float32' there and 'uint8' elsewhere"
    with pytest.raises(RunError, match=reason):
        flower_run(recipe, tmp_path / "flower", grid, score="sites")


def test_a_run_scored_by_sites_trains_the_same_model(tmp_path):
    recipe = small_recipe(tmp_path, rounds={"number": 2})
    expected, records = finish(recipe, tmp_path / "inline")
    summary, flower = flower_run(recipe, tmp_path / "flower", score="sites")
    assert summary["sha256"] == expected["sha256"]
    # All have the same test data here, so the mean over sites is the score of any.
    theirs, ours = (r[-1]["scores"]["test"]["macro"] for r in (records, flower))
    assert ours == pytest.approx(theirs)


def test_sites_with_other_classes_are_refused(tmp_path):
    recipe, grid = own_data(tmp_path)
    path = tmp_path / "site1.npz"
    with np.load(path) as whole:
        arrays = dict(whole)
    arrays["labels"] = np.minimum(arrays["labels"], 1)
    np.savez(path, **arrays)
    with pytest.raises(RunError, match="client 1 has other data than the rest: classes"):
        flower_run(recipe, tmp_path / "flower", grid, score="sites")


def test_a_site_with_images_of_another_size_is_named_before_anything_is_trained(tmp_path):
    recipe, grid = own_data(tmp_path)
    path = tmp_path / "site1.npz"
    with np.load(path) as whole:
        arrays = dict(whole)
    arrays["images"] = np.repeat(arrays["images"], 2, axis=2)
    np.savez(path, **arrays)
    reason = r"client 1 has other data.*the shape of an input is \(1, 8, 16\) there and \(1, 8, 8\)"
    with pytest.raises(RunError, match=reason):
        flower_run(recipe, tmp_path / "flower", grid, score="sites")
    assert "train" not in {kind for kind, _, _ in grid.asked}
    assert not RunFolder(tmp_path / "flower").is_run()


def test_sites_that_tell_no_shape_are_taken_as_before(tmp_path):
    """Reports of sites of an older version are accepted."""
    recipe, grid = own_data(tmp_path)

    def older(content):
        for name in ("shape", "dtype", "mean", "std"):
            del content["outline"][name]

    grid.faults[1, 0] = changing(older)
    _, records = flower_run(recipe, tmp_path / "flower", grid, score="sites")
    assert len(records) == 2
    with pytest.raises(RunError, match=r"does not describe its network.*sites"):
        load_model(tmp_path / "flower")


def test_scores_need_a_quorum_of_sites(tmp_path):
    recipe = small_recipe(tmp_path, rounds={"number": 1})
    recipe = with_defense(recipe, quorum=1.0, attempts=1)
    grid = open_loopback(recipe)
    plain = grid._answer

    def fail_to_score(number, node, message):
        reply = plain(number, node, message)
        if message.metadata.message_type == "evaluate" and number == FIRST_NODE:
            reply.content["facts.test"] = MetricRecord({"samples": -1})
        return reply

    grid._answer = fail_to_score
    with pytest.raises(RunError, match="2 of 3 sites scored the model and 3 are needed"):
        flower_run(recipe, tmp_path / "flower", grid, score="sites")


def test_the_server_app_runs_the_recipe_of_its_config(recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(logging.getLogger("fedbb"), "handlers", [])
    monkeypatch.setattr(logging.getLogger("fedbb"), "level", logging.WARNING)
    monkeypatch.setattr(http_grid, "pull_objects", http_grid.pull_objects)
    grid = open_loopback(recipe)
    config = {
        "recipe": json.dumps(recipe.model_dump(mode="json")),
        "folder": str(tmp_path / "flower"),
        "wait": 5,
    }
    server.app(grid, Context(1, 1, {}, RecordDict(), config))
    told = capsys.readouterr().err
    assert "fedbb: round 2 of 2: 3 clients, balanced accuracy " in told
    assert RunFolder(tmp_path / "flower").file("summary.json").exists()
    part = bytes(REPLY_BASE // 4)  # one for all: nothing here copies it
    parts = [str(number) for number in range(50)]
    pulled = http_grid.pull_objects(object_ids=parts[:4], pull_object_fn=lambda name: part)
    assert list(pulled) == parts[:4]
    with pytest.raises(ReplyError, match="the most that a reply may have"):
        http_grid.pull_objects(object_ids=parts, pull_object_fn=lambda name: part)


def test_a_reply_may_be_longer_by_the_statistics_of_the_method(tmp_path):
    recipe = small_recipe(tmp_path, method={"name": "scaffold"}, rounds={"number": 1})
    transport = GridTransport(open_loopback(recipe), poll=0.01)
    run = serve(transport, RunSettings(recipe, tmp_path / "flower", wait=5.0))
    next(run)
    run.close()
    state = RunFolder(tmp_path / "flower").latest().state
    parameters = sum(tensor.numel() for tensor in state.params.values())
    assert transport.statistics_numbers == parameters > 0


def test_models_with_statistics_of_batches_keep_their_bits(tmp_path):
    recipe = small_recipe(tmp_path, model={"name": "resnet11"}, rounds={"number": 2})
    expected, _ = finish(recipe, tmp_path / "inline")
    summary, _ = flower_run(recipe, tmp_path / "flower")
    assert summary["sha256"] == expected["sha256"]
    state = RunFolder(tmp_path / "flower").latest().state
    assert any(tensor.ndim == 0 for tensor in state.buffers.values())
    assert digest(state) == expected["sha256"]
