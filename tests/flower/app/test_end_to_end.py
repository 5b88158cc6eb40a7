"""Recipes across real nodes, with TLS and keys: the inline engine's bits, whatever happens."""

import os
import signal

import pytest

from fedbb.runs.folder import RunFolder
from fedbb.state import digest
from helpers.flower_loopback import inline_without, with_defense
from helpers.flower_runs import (
    PATIENCE,
    complete,
    missing,
    rounds_done,
    start,
    wait_for_job,
    wait_until,
)
from helpers.small_run import finish, small_recipe, without_seconds

pytestmark = [pytest.mark.flower, pytest.mark.timeout(PATIENCE + 200)]


# FedBB is the one that loses a node, and MOON, whose memories count from the second round on, the
# one that outlives its SuperLink: both must end with the inline engine's bits.
METHODS = ("fedavg", "fednova")


@pytest.fixture(scope="module")
def started(federation, tmp_path_factory):
    """All runs at once: alone, each would mostly wait for nodes that ask every three seconds."""
    return {method: begin(method, federation, tmp_path_factory) for method in METHODS}


def begin(method, federation, tmp_path_factory):
    place = tmp_path_factory.mktemp("bits")
    recipe = small_recipe(place, method={"name": method}, rounds={"number": 1})
    return recipe, place, start(federation, recipe, place / "flower")


def check_bits(federation, recipe, place, run):
    flower, ours = complete(federation, run, place / "flower")
    inline, records = finish(recipe, place / "inline")
    assert flower == inline
    assert without_seconds(ours) == without_seconds(records)


@pytest.mark.parametrize("method", METHODS)
def test_a_recipe_gives_the_inline_engines_bits(method, federation, started):
    check_bits(federation, *started[method])


@pytest.mark.slow
def test_fedbb_undisturbed_gives_the_inline_engines_bits(federation, tmp_path_factory):
    check_bits(federation, *begin("fedbb", federation, tmp_path_factory))


def test_a_node_killed_in_mid_round_costs_one_client_and_comes_back(federation, tmp_path):
    recipe = small_recipe(tmp_path, rounds={"number": 3})
    path, (other, node, _) = tmp_path / "flower", federation.nodes
    run = start(federation, recipe, path)
    wait_for_job(federation, node.name)
    node.kill()
    # Another node holds the rounds up: on a slow machine the run would end before the return.
    os.killpg(other.pid, signal.SIGSTOP)
    try:
        node.restart()
    finally:
        os.killpg(other.pid, signal.SIGCONT)
    summary, records = complete(federation, run, path)
    away = missing(records)
    assert (1, 1) in away
    assert {client for client, _ in away} == {1}
    assert records[0]["absent"][0]["reason"] in ("left in mid-round", "was restarted in mid-round")
    assert records[-1]["absent"] == []
    assert summary["sha256"] == digest(inline_without(recipe, away)[-1])


@pytest.mark.slow
def test_a_straggler_is_waited_for_until_the_deadline_and_then_counts_again(federation, tmp_path):
    recipe = small_recipe(tmp_path, rounds={"number": 1})
    _, records = complete(
        federation, start(federation, recipe, tmp_path / "first"), tmp_path / "first"
    )
    usual = records[0]["seconds"]["train"]
    recipe = small_recipe(tmp_path, rounds={"number": 3})
    recipe = with_defense(recipe, deadline=max(12.0, 2.5 * usual))
    path, node = tmp_path / "flower", federation.nodes[2]
    run = start(federation, recipe, path)
    wait_for_job(federation, node.name)
    os.killpg(node.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: rounds_done(path) >= 1)
    finally:
        os.killpg(node.pid, signal.SIGCONT)
    summary, records = complete(federation, run, path)
    away = missing(records)
    assert (2, 1) in away
    assert (2, 3) not in away
    # Flower itself takes a node for gone after a minute without a sign of it.
    reasons = ("no reply within", "left in mid-round")
    assert records[0]["absent"][0]["reason"].startswith(reasons)
    assert summary["sha256"] == digest(inline_without(recipe, away)[-1])


@pytest.mark.slow
def test_a_run_outlives_its_superlink(federation, tmp_path):
    recipe = small_recipe(tmp_path, method={"name": "moon+fedbb"}, rounds={"number": 2})
    expected, _ = finish(recipe, tmp_path / "inline")
    path = tmp_path / "flower"
    start(federation, recipe, path)
    wait_until(lambda: rounds_done(path) >= 1)
    wait_for_job(federation, federation.nodes[0].name)
    federation.superlink.kill()
    assert rounds_done(path) < 2
    federation.start_superlink()
    federation.wait_for_nodes(federation.nodes)
    summary, _ = complete(federation, start(federation, recipe, path, resume=True), path)
    assert summary == expected
    assert missing(RunFolder(path).records()) == set()
