"""Processes of a federation: started, ended, and never left behind."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedbb.errors import RunError
from fedbb.flower.admin import processes
from fedbb.flower.admin.certificates import make_certificates
from fedbb.flower.admin.control import Control
from fedbb.flower.admin.local import LocalFederation, free_port
from fedbb.flower.admin.membership import admit, dismiss, dismissed
from fedbb.flower.admin.paths import FederationFolder
from fedbb.flower.admin.processes import OFFLINE, Group, environment
from fedbb.flower.admin.status import describe
from fedbb.flower.admin.superlink import is_allowed
from fedbb.flower.admin.templates import make_federation

SLEEP = "import time; print('here', flush=True); time.sleep(600)"
# A program with a child in a session of its own, as the SuperLink has one; both are deaf.
DEAF = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "child"], start_new_session=True)
print("here", flush=True)
time.sleep(600)
"""


def wait_until(condition, seconds=90):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_leaving_the_group_ends_its_programs(tmp_path):
    with Group() as group:
        for name in ("one", "two"):
            group.start(name, [sys.executable, "-c", SLEEP], dict(os.environ), tmp_path / name)
        wait_until(lambda: len(processes.find_marked(group.mark)) == 2)
    assert processes.find_marked(group.mark) == []


def test_a_program_that_does_not_listen_is_killed_with_all_that_it_started(tmp_path):
    script = tmp_path / "deaf.py"
    script.write_text(DEAF)
    with Group() as group:
        started = group.start(
            "deaf", [sys.executable, str(script)], dict(os.environ), tmp_path / "log"
        )
        wait_until(lambda: started.output().count("here") == 2)
        assert len(processes.find_marked(group.mark)) == 2
        started.kill()
        assert processes.find_marked(group.mark) == []
        assert not started.is_running()


def test_a_stopped_program_is_ended_too(tmp_path):
    with Group() as group:
        started = group.start(
            "one", [sys.executable, "-c", SLEEP], dict(os.environ), tmp_path / "log"
        )
        wait_until(lambda: "here" in started.output())
        os.kill(started.pid, signal.SIGSTOP)
    assert processes.find_marked(group.mark) == []


def test_where_marks_cannot_be_seen_programs_are_ended_by_their_group(tmp_path, monkeypatch):
    group = Group()
    group.mark, known = "nobody has this", group.mark
    monkeypatch.setattr(processes, "find_marked", lambda mark: [])
    with group:
        group.mark = known
        started = group.start(
            "one", [sys.executable, "-c", SLEEP], dict(os.environ), tmp_path / "log"
        )
        wait_until(lambda: "here" in started.output())
    assert started.process.returncode == -signal.SIGTERM


def test_names_that_begin_alike_are_told_apart(tmp_path):
    with Group() as group:
        one, ten = (
            group.start(name, [sys.executable, "-c", SLEEP], dict(os.environ), tmp_path / name)
            for name in ("site-1", "site-10")
        )
        wait_until(lambda: "here" in ten.output() and "here" in one.output())
        one.kill()
        assert ten.is_running()


STARTER = f"""
import os, pathlib, signal, sys, time
from fedbb.flower.admin.processes import Group
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be deaf
with Group() as group:
    words = [sys.executable, "-c", {SLEEP!r}]
    group.start("one", words, dict(os.environ), pathlib.Path(sys.argv[1]))
    print(group.mark, flush=True)
    time.sleep(600)
"""


def test_programs_end_with_whoever_started_them_however_that_ended(tmp_path):
    ways = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
    words = [sys.executable, "-c", STARTER]
    starters = [
        subprocess.Popen([*words, tmp_path / str(way)], stdout=subprocess.PIPE, text=True)
        for way in ways
    ]
    for starter, way in zip(starters, ways, strict=True):
        with starter:
            mark = starter.stdout.readline().strip()
            wait_until(lambda mark=mark: len(processes.find_marked(mark)) == 1)
            starter.send_signal(way)
        wait_until(lambda mark=mark: processes.find_marked(mark) == [])


def test_flower_is_told_to_stay_offline_whatever_the_user_has_set(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    monkeypatch.setenv("FLWR_HOME", "/elsewhere")
    variables = environment(tmp_path)
    assert variables.items() >= OFFLINE.items()
    assert variables["FLWR_HOME"] == str(tmp_path)
    assert variables["PATH"].startswith(str(Path(sys.executable).parent))


def test_a_port_that_is_taken_is_told_before_anything_is_started(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        federation = LocalFederation(tmp_path / "federation", 0, port=port)
        with pytest.raises(RunError, match=f"127.0.0.1:{port} cannot be listened on.*--port"):
            federation.__enter__()
    assert not federation.folder.path.exists()


@pytest.mark.parametrize(
    ("path", "client", "allowed"),
    [
        ("/v1/fleet/pull-messages", "203.0.113.5", True),
        ("/health", "203.0.113.5", True),
        ("/v1/control/start-run", "203.0.113.5", False),
        ("/v1/control/start-run", "127.0.0.1", True),
        ("/v1/control/start-run", "::1", True),
        ("/v1/control/start-run", "::ffff:127.0.0.1", True),
        ("/v1/control/start-run", "::ffff:203.0.113.5", False),
        ("/v1/control/start-run", "10.0.0.1", True),  # the server's own address
        ("/v1/runtime/acquire-task", "203.0.113.5", False),
        ("/v1/fleetish", "203.0.113.5", False),
        ("/healthy", "203.0.113.5", False),
        ("/docs", "203.0.113.5", False),
        ("/v1/control/start-run", "testclient", False),
    ],
)
def test_other_machines_reach_the_interface_for_nodes_only(path, client, allowed):
    scope = {"type": "http", "path": path, "client": (client, 9), "server": ("10.0.0.1", 8443)}
    assert is_allowed(scope) == allowed


def test_who_hides_where_they_call_from_is_refused():
    assert not is_allowed({"type": "http", "path": "/docs", "client": None, "server": None})
    assert not is_allowed({"type": "websocket", "path": "/health", "client": None, "server": None})


def test_no_server_is_told_with_what_to_do(tmp_path):
    folder = FederationFolder(tmp_path)
    with pytest.raises(RunError, match="start it with: fedbb flower up"):
        folder.listening()


@pytest.mark.flower
def test_sites_are_online_when_the_block_is_entered(federation):
    assert federation.online() == {"site-0", "site-1", "site-2"}
    assert len(federation.control.nodes()) == 3


@pytest.mark.flower
def test_nodes_and_server_come_back_after_a_power_cut(federation):
    node = federation.nodes[1]
    before = {entry.name: entry.identity for entry in federation.control.nodes()}
    node.kill()
    assert processes.find_marked(node.program.mark) == []
    federation.superlink.kill()
    assert processes.find_marked(federation.superlink.mark) == []
    federation.start_superlink()
    node.restart()
    assert {entry.name: entry.identity for entry in federation.control.nodes()} == before
    federation.wait_for_nodes(federation.nodes)


@pytest.mark.flower
def test_nothing_is_written_outside_the_folder_and_nobody_calls_home(federation):
    for node in federation.nodes:
        assert (node.site.state / "node.toml").exists()
    for process in processes.find_marked(federation.mark):
        entries = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
        assert b"FLWR_TELEMETRY_ENABLED=0" in entries
        home = next(entry for entry in entries if entry.startswith(b"FLWR_HOME="))
        assert home.startswith(f"FLWR_HOME={federation.folder.path}".encode())


@pytest.mark.flower
def test_a_server_that_is_not_there_is_told(federation):
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    with (
        Control(address, federation.folder.ca) as control,
        pytest.raises(RunError, match=f"no server responds at {address}"),
    ):
        control.nodes()


@pytest.mark.flower
def test_a_site_is_added_and_taken_out_while_the_server_runs(federation):
    folder = federation.folder
    make_federation(folder, 4)
    make_certificates(folder)
    try:
        assert admit(folder, federation.control) == ["site-3"]
        assert admit(folder, federation.control) == []
        assert [node.status for node in federation.control.nodes()] == [
            *["online"] * 3,
            "registered",
        ]
        dismiss(federation.control, "site-3")
        assert dismissed(folder, federation.control) == ["site-3"]
        assert admit(folder, federation.control) == []  # Flower takes no key twice
        assert describe(folder)["sites"][-1]["status"] == "dismissed"
        with pytest.raises(RunError, match="registered: site-0, site-1, site-2"):
            dismiss(federation.control, "site-3")
    finally:
        shutil.rmtree(folder.site(3).path)
