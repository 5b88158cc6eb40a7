"""The SuperNode of a site: how it waits, and what becomes of a worker that ends or hangs."""

import os
import signal
import time
from pathlib import Path

import pytest
from flwr.app import Error, Message, RecordDict
from flwr.supercore.interceptors import SuperExecAuthHttpInterceptor
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.nodestate import NodeStateFactory
from httpx import HTTPStatusError

from fedbb.errors import RunError
from fedbb.flower import internals
from fedbb.flower.admin import supernode
from fedbb.flower.admin.local import node_command
from fedbb.flower.admin.paths import SiteFolder
from fedbb.flower.admin.supernode import Pauses, Worker, WorkerLostError, time_limit, write_secret
from fedbb.flower.app.frames import pack_reply
from fedbb.state import digest
from helpers.flower_grid import take_identity
from helpers.flower_loopback import inline_without
from helpers.flower_runs import complete, missing, start, wait_for_job, wait_until, workers
from helpers.small_run import small_recipe

TESTS = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("waited", "response", "expected"),
    [
        (0.0, 0.0, 0.1),  # right after a message
        (0.5, 0.01, 0.1),
        (10.0, 0.01, 1.0),  # a tenth of the time waited
        (60.0, 0.01, 3.0),  # never longer than Flower itself
        (5.0, 0.4, 1.6),  # a server that takes long to respond
        (5.0, 9.0, 0.5),  # the time was spent on a reply
    ],
)
def test_a_site_asks_soon_after_a_message_and_rarely_without_one(waited, response, expected):
    assert Pauses().pause(waited, response, 3.0) == pytest.approx(expected)


def test_a_reply_ends_the_wait_for_it_and_a_message_is_announced():
    pauses = Pauses()
    pauses.reply.set()
    began = time.monotonic()
    pauses.sleep(0.5)
    assert time.monotonic() - began < 0.4
    assert pauses.message.is_set()
    assert pauses.connected.is_set()
    assert not pauses.reply.is_set()


def test_a_site_without_work_announces_no_message():
    pauses = Pauses()
    pauses.sleep(3)
    assert pauses.connected.is_set()
    assert not pauses.message.is_set()


def test_a_worker_may_take_as_long_as_the_server_waits():
    assert time_limit("train", 360.0, "fedbb/fedbb-app") == 60.0
    assert time_limit("evaluate", 10.0, "fedbb/fedbb-app") == 1.0
    assert time_limit("train", 1000.0, "someone/else") == 900.0


def test_data_may_take_longer_to_prepare_than_the_server_waits():
    assert time_limit("query.info", 360.0, "fedbb/fedbb-app") == 12 * 3600
    assert time_limit("query.secure", 360.0, "fedbb/fedbb-app") == 60.0


def test_the_secret_is_for_its_owner_alone_and_new_each_time(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o644)
    secret = write_secret(path)
    assert path.read_bytes() == secret != write_secret(path)
    assert len(secret) == 32
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_node_starts_nothing_itself_and_asks_for_its_secret(tmp_path):
    words = node_command(SiteFolder(tmp_path), {"client": 0}, "localhost:1", 2)
    assert words[words.index("--isolation") + 1] == "process"
    assert words[words.index("--superexec-auth-secret-file") + 1].startswith(str(tmp_path))


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(supernode, "WORKER", "helpers.worker_process")
    monkeypatch.setenv("PYTHONPATH", f"{os.environ.get('PYTHONPATH', '')}:{TESTS}")
    worker = Worker()
    yield worker
    worker.process.kill()
    worker.process.wait()
    worker._connection.close()


def test_a_worker_stays_for_its_app_and_makes_way_for_another(worker):
    first, second, other = (worker.ask(app, [b"work", app.encode()], 60) for app in "aab")
    assert first == second
    assert first[0] != other[0]
    assert other[1] == b"b"


def test_a_worker_for_single_use_is_replaced(worker):
    pids = {worker.ask("a", [b"once"], 60)[0] for _ in range(2)}
    assert len(pids) == 2


def test_a_worker_that_crashes_or_hangs_is_reported_and_replaced(worker):
    with pytest.raises(WorkerLostError, match="ended with code 3"):
        worker.ask("a", [b"crash"], 60)
    (pid,) = worker.ask("a", [b"work"], 60)
    with pytest.raises(WorkerLostError, match="did not end within 0 s"):
        worker.ask("a", [b"hang"], 0.2)
    os.kill(worker.process.pid, signal.SIGSTOP)
    with pytest.raises(WorkerLostError, match="did not end within 0 s"):
        worker.ask("a", [b"work", bytes(10**7)], 0.2)  # more than a socket holds
    worker.process.kill()
    worker.process.wait()
    assert worker.ask("a", [b"work"], 60) != [pid]


def test_a_lost_worker_becomes_an_error_as_reply(monkeypatch):
    take_identity(monkeypatch)
    message = Message(RecordDict(), 1, "train")
    message.metadata.__dict__["_message_id"] = "a" * 64
    bare, tree, *objects = pack_reply(Message(Error(7, "gone"), reply_to=message))
    back = internals.message_from_proto(internals.MessageProto.FromString(bare))
    assert (back.error.code, back.error.reason) == (7, "gone")
    assert back.metadata.reply_to_message_id == "a" * 64
    assert internals.ObjectTree.FromString(tree).object_id == objects[-2].decode()


def test_a_task_is_taken_once_and_asks_nothing_after_its_end():
    state = NodeStateFactory(ObjectStoreFactory()).state()
    assert internals.NodeTask.acquire(state, supernode.CLIENT_APP) is None
    state.create_task(task_type=supernode.CLIENT_APP, run_id=5, fab_hash="f")
    assert internals.NodeTask.acquire(state, "another-app") is None
    task = internals.NodeTask.acquire(state, supernode.CLIENT_APP)
    assert internals.NodeTask.acquire(state, supernode.CLIENT_APP) is None
    assert not task.call("pull_messages", internals.PullAppMessagesRequest()).messages_list
    task.prolong()
    output = internals.PushTaskOutputRequest(sub_status=internals.SubStatus.FAILED)
    task.call("push_task_output", output)
    with pytest.raises(RunError, match="given up this task"):
        task.call("pull_messages", internals.PullAppMessagesRequest())


def has_job(federation, site):
    """Tell whether a site has a job that it did not reply to for three seconds."""
    for _ in range(3):
        written = federation.logs(site)
        if written.count("Receiving: train") == written.count("Sending: train"):
            return False
        time.sleep(1)
    return True


@pytest.mark.flower
@pytest.mark.timeout(600)
def test_a_worker_killed_in_mid_round_costs_one_client_and_another_takes_over(federation, tmp_path):
    recipe = small_recipe(tmp_path, rounds={"number": 3})
    path, node, other = tmp_path / "flower", federation.nodes[1], federation.nodes[0]
    run = start(federation, recipe, path)
    wait_until(lambda: workers(other))
    stayed = workers(other)
    wait_for_job(federation, node.name)
    (pid,) = workers(node)
    os.kill(pid, signal.SIGSTOP)  # a job as small as this would be done before the worker is killed
    wait_until(lambda: has_job(federation, node.name))
    os.kill(pid, signal.SIGKILL)
    summary, records = complete(federation, run, path)
    away = missing(records)
    assert len(away) == 1
    ((client, number),) = away
    assert client == 1
    assert records[number - 1]["absent"][0]["reason"] == "its client app crashed"
    assert summary["sha256"] == digest(inline_without(recipe, away)[-1])
    assert workers(other) == stayed
    assert len(workers(node)) == 1
    assert workers(node) != [pid]


@pytest.mark.flower
def test_without_the_secret_nobody_on_the_machine_takes_a_sites_tasks(federation):
    words = federation.nodes[0].program.command
    address = "127.0.0.1:" + words[words.index("--port") + 1]
    version = internals.RuntimeVersionHttpInterceptor(component_name="stranger")
    wrong = SuperExecAuthHttpInterceptor(
        master_secret=b"guessed",
        protected_methods=frozenset({"/flwr.proto.Runtime/AcquireTask"}),
    )
    request = internals.AcquireTaskRequest(supported_task_types=["flwr-clientapp"])
    for interceptors in ([version], [version, wrong]):
        client = RuntimeHttpClient.from_server_address(address, True, None, interceptors)
        with pytest.raises(HTTPStatusError) as refusal:
            client.AcquireTask(request)
        client.close()
        assert refusal.value.response.status_code in (401, 403)
