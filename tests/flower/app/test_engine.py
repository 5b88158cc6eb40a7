"""On Flower a recipe gives the inline engine's bits; a bad answer costs its client one round."""

import json
import logging
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import QuorumError
from fedbb.evaluation.metrics import score_multiclass, score_multilabel
from fedbb.flower.app.engine import IN_MEMORY, pool_scores, weighted_mean
from fedbb.flower.app.serde import PACKED, unpack_record
from fedbb.flower.app.server import serve
from fedbb.flower.app.settings import RunSettings
from fedbb.flower.app.transport import GridTransport
from fedbb.methods import registry
from fedbb.recipes.check import check_recipe
from fedbb.records import Task
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.federation import prepare
from fedbb.runs.folder import RunFolder
from fedbb.runs.runtime import network_of
from fedbb.state import digest, snapshot
from helpers.cover import few
from helpers.cramped_site import CrampedGrid
from helpers.flower_loopback import (
    FIRST_NODE,
    Node,
    changing,
    double,
    drop,
    flower_run,
    inline_without,
    open_loopback,
    take_identity,
    with_defense,
)
from helpers.slot_method import slot_method
from helpers.small_run import finish, small_recipe, without_seconds

SLOTS = "all-slots"
"""The name of a method that fills every slot, for the time of a test."""

METHODS = ["fedavg", "fedbb", "moon+fedbb", "fednova", "scaffold", "fedadam", "feddyn", SLOTS]


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    take_identity(monkeypatch)
    monkeypatch.setitem(registry.METHODS, SLOTS, slot_method)


@pytest.fixture
def recipe(tmp_path):
    return small_recipe(tmp_path, method={"name": "fedbb"}, rounds={"number": 3})


def named(folder, method, rounds=3, **changes):
    return small_recipe(folder, method={"name": method}, rounds={"number": rounds}, **changes)


@pytest.mark.parametrize("method", few(METHODS, 2))
def test_a_recipe_gives_the_inline_engines_bits(method, tmp_path):
    recipe = named(tmp_path, method)
    inline, inline_records = finish(recipe, tmp_path / "inline")
    flower, flower_records = flower_run(recipe, tmp_path / "flower")
    assert flower == inline
    assert without_seconds(flower_records) == without_seconds(inline_records)


def test_a_part_of_the_clients_and_unequal_sizes_give_the_inline_engines_bits(tmp_path):
    skew = {"kind": "quantity-skew", "clients": 4, "concentration": 1.0, "min_samples": 2}
    recipe = named(
        tmp_path,
        "moon+fedbb",
        data={"name": "npz", "path": str(tmp_path / "small.npz"), "partition": skew},
    )
    recipe = recipe.model_copy(update={"rounds": replace(recipe.rounds, participation=0.5)})
    inline, _ = finish(recipe, tmp_path / "inline")
    flower, _ = flower_run(recipe, tmp_path / "flower", open_loopback(recipe, 4))
    assert flower["sha256"] == inline["sha256"]


def packed(arrays):
    """Return arrays of any type as a record, by a transcription of the format."""
    entries = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    header = json.dumps(entries).encode()
    values = b"".join(array.tobytes() for array in arrays.values())
    return block(len(header).to_bytes(8, "little") + header + values)


def block(data, stype=PACKED):
    return ArrayRecord({PACKED: Array("uint8", (len(data),), stype, data)})


def edit(key, alter):
    def change(content):
        content[key] = packed(alter(unpack_record(content, key)))

    return change


def set_entry(name, array, key="state"):
    return edit(key, lambda arrays: {**arrays, name: array})


def drop_statistics(content):
    del content["statistics"]


LOSS = "params.start-loss.loss"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            set_entry("params.other.loss", np.zeros(()), "statistics"),
            "statistics: adds 'params.other.loss'",
        ),
        (drop_statistics, "statistics: misses 'params.head-change.weight', "),
        (set_entry(LOSS, np.zeros(2), "statistics"), "has shape (2,), not ()"),
        (set_entry(LOSS, np.zeros((), np.float32), "statistics"), "has type <f4, not <f8"),
        (set_entry(LOSS, np.array(np.nan), "statistics"), "holds values that are not finite"),
        (set_entry(LOSS, np.array(-1.0), "statistics"), "statistic start-loss: a loss is below 0"),
    ],
)
def test_a_reply_with_bad_statistics_is_left_out_and_the_round_goes_on(tmp_path, change, reason):
    recipe = named(tmp_path, SLOTS, rounds=1)
    grid = open_loopback(recipe)
    grid.faults[1, 1] = changing(change)
    (record,) = flower_run(recipe, tmp_path / "flower", grid)[1]
    assert [client["client"] for client in record["clients"]] == [0, 2]
    (absent,) = record["absent"]
    assert absent["client"] == 1
    assert reason in absent["reason"]


def test_a_statistic_that_nobody_asked_for_is_refused(tmp_path):
    recipe = named(tmp_path, "fedavg", rounds=1)
    grid = open_loopback(recipe)

    def add(content):
        content["statistics"] = packed({"params.x.y": np.zeros(1)})

    grid.faults[0, 1] = changing(add)
    (record,) = flower_run(recipe, tmp_path / "flower", grid)[1]
    assert record["absent"][0]["reason"].endswith("adds 'params.x.y'")


def test_a_run_with_every_slot_resumes_on_flower_to_the_bit(tmp_path):
    recipe = named(tmp_path, SLOTS)
    whole, _ = finish(recipe, tmp_path / "inline")
    grid = open_loopback(recipe, state=str(tmp_path / "state"))
    settings = RunSettings(recipe, tmp_path / "flower", wait=5.0)
    records = serve(GridTransport(grid, poll=0.01), settings)
    next(records)
    records.close()
    resumed, _ = flower_run(recipe, tmp_path / "flower", grid, resume=True)
    assert resumed["sha256"] == whole["sha256"]


def without(recipe, folder, grid, missing, **settings):
    """Run on Flower and inline without these, and return the Flower records once they agree."""
    summary, records = flower_run(recipe, folder / "flower", grid, **settings)
    assert summary["sha256"] == digest(inline_without(recipe, missing)[-1])
    return records


def set_fact(name, value):
    def change(content):
        content["facts"] = MetricRecord({**content["facts"], name: value})

    return change


def fill(name, value):
    def alter(arrays):
        arrays[name].flat[0] = value
        return arrays

    return edit("state", alter)


def remove(record, name):
    def change(content):
        del content[record][name]

    return change


def omit(name):
    return edit("state", lambda arrays: {n: a for n, a in arrays.items() if n != name})


def rename(before, after):
    return edit("state", lambda arrays: {after if n == before else n: a for n, a in arrays.items()})


def reshape(name, shape):
    return edit("state", lambda arrays: {**arrays, name: arrays[name].reshape(shape)})


def cast(name, kind):
    return edit("state", lambda arrays: {**arrays, name: arrays[name].astype(kind)})


def raw(data, stype=PACKED):
    def change(content):
        content["state"] = block(data, stype)

    return change


FIRST = "params.conv1.weight"

BAD = {
    "NaN": (fill(FIRST, math.nan), f"{FIRST} holds values that are not finite"),
    "Inf": (fill(FIRST, math.inf), "not finite"),
    "minus Inf": (fill(FIRST, -math.inf), "not finite"),
    "overflow": (fill(FIRST, 3e38), "overflow"),
    "wrong shape": (reshape(FIRST, -1), f"{FIRST} has shape"),
    "(1,)-shape": (set_entry(FIRST, np.ones(1, np.float32)), f"{FIRST} has shape \\(1,\\)"),
    "0-d": (set_entry(FIRST, np.array(1, np.float32)), f"{FIRST} has shape \\(\\)"),
    "wrong dtype": (cast(FIRST, np.float64), f"{FIRST} has type <f8"),
    "half": (cast(FIRST, np.float16), f"{FIRST} has type <f2"),
    "big-endian": (cast(FIRST, ">f4"), "'>f4' is not a type of values"),
    "missing key": (omit(FIRST), f"misses '{FIRST}'"),
    "extra key": (set_entry("params.more", np.ones(1, np.float32)), "adds 'params.more'"),
    "renamed key": (rename(FIRST, "params.other"), "misses"),
    "negative count": (set_fact("steps", -1), "steps is -1"),
    "zero count": (set_fact("steps", 0), "steps is 0"),
    "huge count": (set_fact("steps", 2**62), "steps is 4611686018427387904"),
    "non-integer count": (set_fact("steps", 2.5), "steps is 2.5"),
    "float count": (set_fact("steps", 3.0), "steps is 3.0"),
    "no count": (remove("facts", "steps"), "steps is None"),
    "loss not finite": (set_fact("train_loss", math.nan), "train_loss is nan"),
    "no loss": (remove("facts", "train_loss"), "train_loss is None"),
    "another's name": (set_fact("client", 0), "client is 0, the number of another"),
    "earlier round": (set_fact("round", 0), "late: it replies to round 0"),
    "other attempt": (set_fact("attempt", 2), "late: it replies to round 1, attempt 2"),
    "no facts": (lambda content: content.pop("facts"), "facts is missing"),
    "no state": (lambda content: content.pop("state"), "state is missing"),
    "pickle": (raw(b"\x80\x04cos\nsystem\n"), "state cannot be read: it ends within its header"),
    "other coding": (raw(b"", stype="pickle"), "state is not packed"),
    "cut off": (raw(b"\x09" + bytes(7) + b'[["x","<f'), "state cannot be read"),
}


@pytest.mark.parametrize("kind", few(BAD, 6))
def test_a_bad_answer_is_refused_by_name_and_the_round_goes_on(kind, tmp_path, caplog):
    change, words = BAD[kind]
    recipe = named(tmp_path, "fedbb", rounds=1)
    grid = open_loopback(recipe)
    grid.faults[1, 1] = changing(change)
    with caplog.at_level(logging.WARNING, "fedbb"):
        (record,) = without(recipe, tmp_path, grid, {(1, 1)})
    (absent,) = record["absent"]
    assert absent["client"] == 1
    assert re.search(f"client 1, round 1: .*{words}", absent["reason"])
    assert "round 1: client 1 is left out: client 1, round 1: " in caplog.text
    assert [client["client"] for client in record["clients"]] == [0, 2]
    assert sum(client["weight"] for client in record["clients"]) == pytest.approx(1.0)


@pytest.mark.parametrize("method", few(["moon+fedbb", "fednova"], 1))
def test_who_is_left_out_once_counts_again_and_remembers_what_the_server_took(method, tmp_path):
    recipe = named(tmp_path, method, rounds=4)
    grid = open_loopback(recipe)
    grid.faults[1, 2] = changing(set_fact("steps", 99))
    without(recipe, tmp_path, grid, {(1, 2)})


def test_an_answer_that_does_not_come_in_time_is_given_up(recipe, tmp_path):
    recipe = with_defense(recipe, deadline=0.3)
    grid = open_loopback(recipe)
    grid.faults[2, 1] = drop
    records = without(recipe, tmp_path, grid, {(2, 1)})
    assert records[0]["absent"] == [{"client": 2, "reason": "no reply within 0.3 s"}]


def test_a_late_answer_is_dropped_in_the_next_round(recipe, tmp_path, caplog):
    recipe = with_defense(recipe, deadline=0.3)
    grid = open_loopback(recipe)
    waiting = []

    def late(message):
        waiting.append(message)
        return []

    def come_in(message):
        grid.hold_back(waiting[0])
        return [message]

    grid.faults[2, 1], grid.faults[0, 2] = late, come_in
    with caplog.at_level(logging.WARNING, "fedbb"):
        without(recipe, tmp_path, grid, {(2, 1)})
    assert "client 2: dropped a late reply to round 1" in caplog.text


def test_updates_that_wait_on_disk_come_back_to_the_bit(tmp_path):
    recipe = named(tmp_path, "fedbb", rounds=2)
    clients = IN_MEMORY + 3
    partition = replace(recipe.data.partition, clients=clients)
    data = recipe.data.model_copy(update={"partition": partition})
    recipe = recipe.model_copy(update={"data": data})
    inline, _ = finish(recipe, tmp_path / "inline")
    grid = open_loopback(recipe, clients, state=str(tmp_path / "state"))
    flower, records = flower_run(recipe, tmp_path / "flower", grid)
    assert flower["sha256"] == inline["sha256"]
    assert [len(record["clients"]) for record in records] == [clients, clients]


def test_a_replayed_answer_counts_once(recipe, tmp_path, caplog):
    grid = open_loopback(recipe)
    grid.faults[1, 2] = double
    with caplog.at_level(logging.WARNING, "fedbb"):
        records = without(recipe, tmp_path, grid, set())
    assert all(record["absent"] == [] for record in records)
    assert "client 1, round 2: duplicate" in caplog.text


def test_an_answer_that_flower_cannot_read_costs_only_its_client(recipe, tmp_path):
    grid = open_loopback(recipe)
    train = []

    def spoil(parcel):
        if grid.asked[-1] == ("train", 1, 1):
            train.append(parcel.number)
            parcel.contents = {name: part[:9] for name, part in parcel.contents.items()}
        return parcel

    grid.spoil = spoil
    records = without(recipe, tmp_path, grid, {(1, 1)})
    assert records[0]["absent"][0]["reason"].startswith("its reply cannot be read")


def test_a_site_that_fails_tells_why_and_costs_one_client(recipe, tmp_path):
    grid = open_loopback(recipe)
    node = grid.nodes[FIRST_NODE + 1]

    def lose_data(message):
        node.config["data"] = str(tmp_path / "nothing.npz")
        return [message]

    def find_data(message):
        node.config.pop("data")
        return [message]

    grid.faults[1, 1], grid.faults[1, 2] = lose_data, find_data
    records = without(recipe, tmp_path, grid, {(1, 2)})
    (absent,) = records[1]["absent"]
    assert absent["reason"].startswith("DataError: its data cannot be used")
    assert "nothing.npz" not in absent["reason"]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc here")
def test_a_site_that_runs_out_of_memory_costs_one_client(tmp_path):
    labels = np.arange(24) % 3
    images = np.random.default_rng(0).integers(0, 255, (24, 64, 64), dtype=np.uint8)
    np.savez(tmp_path / "large.npz", images=images, labels=labels)
    even = {"kind": "even", "clients": 3}
    data = {"name": "npz", "path": str(tmp_path / "large.npz"), "partition": even}
    recipe = named(tmp_path, "fedbb", rounds=3, data=data)
    whole = open_loopback(recipe)
    grid = CrampedGrid(whole.nodes, whole.run_config)
    records = without(recipe, tmp_path, grid, {grid.cramped})
    (absent,) = records[1]["absent"]
    assert absent["client"] == 1
    assert re.match("(MemoryError|RuntimeError|OSError)", absent["reason"])
    assert [record["absent"] for record in records if record["round"] != 2] == [[], []]


def test_a_node_that_is_away_is_absent_at_once_and_may_come_back_as_another(recipe, tmp_path):
    grid = open_loopback(recipe)
    node = grid.nodes[FIRST_NODE + 2]

    def leave(message):
        node.connected = False
        return [message]

    def return_as_another(message):
        grid.nodes[77] = Node(dict(node.config), node.context)
        return [message]

    grid.faults[0, 1], grid.faults[1, 2] = leave, return_as_another
    records = without(recipe, tmp_path, grid, {(2, 1), (2, 2)})
    assert [record["absent"] for record in records] == [
        [{"client": 2, "reason": "left in mid-round"}],
        [{"client": 2, "reason": "not connected"}],
        [],
    ]


def test_a_node_that_was_restarted_is_not_waited_for(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr("fedbb.flower.app.transport.NODE_CHECK_SECONDS", 0.05)
    grid = open_loopback(recipe)

    def restart(message):
        grid.nodes[FIRST_NODE + 1].joined = "again"
        return []

    grid.faults[1, 1] = restart
    records = without(recipe, tmp_path, grid, {(1, 1)})
    assert records[0]["absent"] == [{"client": 1, "reason": "was restarted in mid-round"}]


def test_a_round_without_a_quorum_is_repeated(tmp_path):
    recipe = with_defense(named(tmp_path, "moon+fedbb"), quorum=1.0)
    grid = open_loopback(recipe)
    tries = []

    def fail_once(message):
        tries.append(message)
        return [] if len(tries) == 1 else [message]

    grid.faults[0, 2] = fail_once
    recipe = with_defense(recipe, deadline=0.3)
    without(recipe, tmp_path, grid, set())
    assert len(tries) == 2


def test_a_lost_quorum_stops_the_run_and_it_goes_on_later_to_the_same_model(tmp_path):
    recipe = with_defense(named(tmp_path, "moon+fedbb"), quorum=0.6, attempts=2, deadline=0.3)
    expected, _ = finish(recipe, tmp_path / "inline")
    grid = open_loopback(recipe, state=str(tmp_path / "state"))
    grid.faults[0, 3] = grid.faults[2, 3] = drop
    path = tmp_path / "flower"
    with pytest.raises(QuorumError, match=r"round 3: 1 of 3 clients count and 2 are needed.*kept"):
        flower_run(recipe, path, grid)
    assert grid.asked.count(("train", 1, 3)) == 2
    assert RunFolder(path).latest().round == 2
    assert len(RunFolder(path).records()) == 2
    grid = open_loopback(recipe, state=str(tmp_path / "state"))
    summary, records = flower_run(recipe, path, grid, resume=True)
    assert summary["sha256"] == expected["sha256"]
    assert [record["round"] for record in records] == [3]


def test_a_bound_on_the_way_refuses_and_clipping_draws_back(tmp_path):
    recipe = with_defense(named(tmp_path, "fedavg", rounds=1), max_norm=1e-6, attempts=1)
    with pytest.raises(QuorumError, match=r"the norm of its update is .*, and 1e-06 is allowed"):
        flower_run(recipe, tmp_path / "refused")
    clipped = with_defense(recipe, rule="clip")
    inline, _ = finish(clipped, tmp_path / "inline")
    flower, _ = flower_run(clipped, tmp_path / "flower")
    assert flower["sha256"] == inline["sha256"]


def test_a_client_without_samples_is_never_asked_and_changes_nothing(tmp_path):
    recipe = named(tmp_path, "fedavg", rounds=1)
    grid = open_loopback(recipe)

    def empty(content):
        content["facts"] = MetricRecord({**content["facts"], "samples": 0})

    grid.faults[2, 0] = changing(empty)
    _, records = flower_run(recipe, tmp_path / "flower", grid)
    assert records[0]["absent"] == [{"client": 2, "reason": "has no samples"}]
    assert ("train", 2, 1) not in grid.asked
    assert sum(client["weight"] for client in records[0]["clients"]) == pytest.approx(1.0)


def test_if_nobody_has_samples_the_model_stays_as_it_is(tmp_path):
    recipe = named(tmp_path, "fedavg", rounds=1)
    grid = open_loopback(recipe)

    def empty(content):
        content["facts"] = MetricRecord({**content["facts"], "samples": 0})

    for client in range(3):
        grid.faults[client, 0] = changing(empty)
    _, records = flower_run(recipe, tmp_path / "flower", grid)
    assert len(records[0]["absent"]) == 3
    assert records[0]["clients"] == []
    model = network_of(recipe, check_recipe(recipe), prepare(recipe).dataset)
    final = load_checkpoint(tmp_path / "flower" / "final.safetensors").state
    assert digest(final) == digest(snapshot(model))


def site(samples, seed, classes=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, classes)), rng.integers(0, classes, samples)


def test_one_sites_scores_are_the_pooled_ones():
    alone = score_multiclass(*site(30, 0))
    pooled = pool_scores([{"test": alone}], Task.MULTICLASS)["test"]
    assert pooled.as_json() == alone.as_json()


def test_one_sites_scores_are_the_pooled_ones_with_many_labels():
    rng = np.random.default_rng(1)
    alone = score_multilabel(rng.normal(size=(40, 3)), rng.integers(0, 2, (40, 3)))
    pooled = pool_scores([{"test": alone}], Task.MULTILABEL)["test"]
    assert pooled.macro == pytest.approx(alone.macro)
    assert pooled.defined == alone.defined


def test_accuracy_is_that_of_all_samples_together():
    parts = [site(30, 0), site(10, 1), site(55, 2)]
    together = score_multiclass(*(np.concatenate(both) for both in zip(*parts, strict=True)))
    pooled = pool_scores([{"test": score_multiclass(*part)} for part in parts], Task.MULTICLASS)
    assert pooled["test"].macro["accuracy"] == pytest.approx(together.macro["accuracy"])
    assert pooled["test"].samples == 95


def test_a_class_that_a_site_lacks_is_scored_by_the_others():
    logits, labels = site(30, 0)
    lacking = score_multiclass(logits, np.minimum(labels, 1))
    whole = score_multiclass(*site(10, 1))
    pooled = pool_scores([{"test": lacking}, {"test": whole}], Task.MULTICLASS)["test"]
    assert pooled.per_class["recall"][2] == whole.per_class["recall"][2]
    assert pooled.defined["f1"] == 3
    nowhere = pool_scores([{"test": lacking}], Task.MULTICLASS)["test"]
    assert math.isnan(nowhere.per_class["recall"][2])
    assert nowhere.defined["f1"] == 2


def test_a_site_without_validation_data_counts_for_test_data_only():
    one, two = score_multiclass(*site(30, 0)), score_multiclass(*site(10, 1))
    pooled = pool_scores([{"test": one}, {"test": two, "validation": two}], Task.MULTICLASS)
    assert pooled["test"].samples == 40
    assert pooled["validation"].as_json() == two.as_json()


@given(
    st.lists(
        st.tuples(st.floats(0, 1) | st.just(math.nan), st.integers(1, 10**6)),
        min_size=1,
        max_size=6,
    )
)
def test_a_mean_lies_among_what_there_is(pairs):
    values = np.array([[value] for value, _ in pairs])
    sizes = np.array([float(size) for _, size in pairs])
    (mean,) = weighted_mean(values, sizes)
    there = values[~np.isnan(values)]
    if len(there) == 0:
        assert math.isnan(mean)
    else:
        assert there.min() - 1e-12 <= mean <= there.max() + 1e-12
