"""Private runs on real nodes: a site whose worker is killed within a sum, and a sparse graph."""

import json
import os
import signal
import time

import pytest

from fedbb.errors import RefusedError
from fedbb.flower.admin.local import LocalFederation
from fedbb.flower.app.settings import read_site_settings
from fedbb.runs.folder import RunFolder
from fedbb.secagg.client_secrets import read_server_keys
from fedbb.secagg.flower.enrolment import enrol, enrolment_folder, keys_for
from fedbb.secagg.flower.serde import SiteMessage
from fedbb.secagg.flower.site import open_secure_site
from fedbb.secagg.masked.client import STAGES, load_attempt
from fedbb.secagg.protocol.messages import SignedMessage, sign_message
from fedbb.secagg.protocol.roster import AGGREGATOR
from helpers.flower_runs import start, wait_until, workers
from helpers.secagg_grid import private_recipe
from helpers.small_run import finish, without_seconds

PATIENCE = 1200

HANDED_OVER = 8.0
"""Seconds in which the SuperNode has handed a message to its worker, also on a busy machine."""

pytestmark = [
    pytest.mark.flower,
    pytest.mark.slow,
    pytest.mark.timeout(PATIENCE + 300),
    pytest.mark.usefixtures("_unenrolled"),
]


def submit(federation, recipe, path, **settings):
    """Start a private run under a roster for its recipe."""
    if not settings:
        for roster in federation.folder.path.rglob("roster.json"):  # of another recipe
            roster.unlink()
        enrol(federation.folder, recipe)
    return start(federation, recipe, path, **keys_for(federation.folder, recipe), **settings)


def end(federation, run):
    return federation.wait_for(run, PATIENCE)


def saved_attempt(node):
    """Return what a site keeps of the sum that it takes part in now, None between two sums."""
    files = sorted(
        node.site.state.glob("*/secure/masked.json"), key=lambda path: path.stat().st_mtime
    )
    content = files[-1].read_bytes() if files else b""
    return load_attempt(content) if content else None


def decisions(node, run):
    lines = (node.site.state / run / "secure" / "journal").read_text().splitlines()
    return dict(json.loads(line) for line in lines)


def unanswered(federation, node):
    written = federation.logs(node.name)
    return written.count("Receiving: ") - written.count("Sending: ")


def kill_before(federation, node, stage):
    """Kill a site's worker when it has got the message of a stage of a round; return the attempt.

    The worker runs in short slices, so that it is stopped between two stages. Then the message
    comes, and the worker is killed with it.
    """
    wait_until(lambda: workers(node))
    (pid,) = workers(node)
    limit = time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < limit
        os.kill(pid, signal.SIGSTOP)
        attempt = saved_attempt(node)
        is_next = attempt is not None and attempt.stage == stage and attempt.attempt_id.round > 0
        if is_next and unanswered(federation, node) == 0:
            break
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.03)
    wait_until(lambda: unanswered(federation, node) == 1)
    time.sleep(HANDED_OVER)
    os.kill(pid, signal.SIGKILL)
    assert saved_attempt(node) == attempt
    return attempt.attempt_id


def repeat(federation, recipe, node, attempt_id, stage):
    """Send a site the message of a stage once more, as a server that lies would."""
    keys = read_server_keys(enrolment_folder(federation.folder))
    facts = {"cohort": [0, 1, 2], "survivors": [0, 1, 2], "alive": [0, 1, 2], "dead": []}
    message = SignedMessage(attempt_id, stage, AGGREGATOR, facts)
    data = sign_message(message, keys.roster, keys.identity)
    site = open_secure_site(recipe, read_site_settings(node.site.node_config()))
    return site.answer(SiteMessage(stage, data, None, {}))


@pytest.mark.parametrize("stage", ["masked", "agree", "unmask"])
def test_a_worker_killed_in_a_sum_takes_no_step_twice_and_the_run_survives(
    federation, tmp_path, stage
):
    # Another seed is another roster: under the same one a site takes part in one run.
    recipe = private_recipe(tmp_path, rounds={"number": 2}, seed=STAGES.index(stage))
    path, node = tmp_path / "flower", federation.nodes[1]
    run = submit(federation, recipe, path)
    lost = kill_before(federation, node, stage)
    simulated, records = finish(recipe, tmp_path / "simulated")
    state = end(federation, run)
    assert state.status == "finished:completed", (state, federation.logs("superlink")[-3000:])
    folder = RunFolder(path)
    assert folder.read_json("summary.json") == simulated
    assert without_seconds(folder.records()) == without_seconds(records)
    # All three sites are needed, so that the sum was made again in another attempt.
    decided = decisions(node, lost.run)
    begun = [key for key, what in decided.items() if f", round {lost.round}, attempt" in what]
    assert len(begun) > 1
    assert f"begun {lost.token}" in begun
    assert f"revealed {lost.token}" not in decided
    for again in STAGES:
        with pytest.raises(RefusedError, match=r"has begun this attempt before|does not expect"):
            repeat(federation, recipe, node, lost, again)


def test_without_further_attempts_the_run_stops_and_is_resumed_to_the_same_bits(
    federation, tmp_path
):
    recipe = private_recipe(tmp_path, rounds={"number": 2}, seed=7, defense={"attempts": 1})
    path, node = tmp_path / "flower", federation.nodes[1]
    run = submit(federation, recipe, path)
    lost = kill_before(federation, node, "unmask")
    simulated, _ = finish(recipe, tmp_path / "simulated")
    state = end(federation, run)
    assert state.status == "finished:failed", state
    told = "".join(text for text, _ in federation.control.log(run))
    assert "2 clients are left after stage unmask of a secure sum and 3 are needed" in told
    assert "finished rounds are kept, and a resumed run continues after them" in told
    state = end(federation, submit(federation, recipe, path, resume=True))
    assert state.status == "finished:completed", (state, federation.logs("superlink")[-3000:])
    assert RunFolder(path).read_json("summary.json") == simulated
    assert f"revealed {lost.token}" not in decisions(node, lost.run)


SITES = 13
"""The fewest sites among which a sparse graph separates no group, if nobody colludes."""


def test_a_sparse_graph_on_real_nodes_gives_the_simulated_runs_bits(tmp_path):
    secure = {"graph": "sparse", "colluders": 0.0, "dropouts": 0.0}
    everyone = {"quorum": 1.0}
    recipe = private_recipe(tmp_path, SITES, rounds={"number": 1}, secure=secure, defense=everyone)
    with LocalFederation(tmp_path / "federation", SITES) as federation:
        path = tmp_path / "flower"
        run = submit(federation, recipe, path)
        simulated, records = finish(recipe, tmp_path / "simulated")
        state = end(federation, run)
        assert state.status == "finished:completed", (state, federation.logs("superlink")[-3000:])
        keys = read_server_keys(enrolment_folder(federation.folder))
    folder = RunFolder(path)
    assert folder.read_json("summary.json") == simulated
    assert without_seconds(folder.records()) == without_seconds(records)
    assert keys.roster.is_sparse
