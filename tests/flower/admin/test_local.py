"""A federation on this machine: ports, restarts, members, and no traces elsewhere."""

import shutil
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedbb.errors import RunError
from fedbb.flower.admin import local, processes
from fedbb.flower.admin.certificates import make_certificates
from fedbb.flower.admin.control import Control, admit, dismiss, dismissed
from fedbb.flower.admin.local import LocalFederation, free_port
from fedbb.flower.admin.paths import FederationFolder
from fedbb.flower.admin.run_monitor import describe
from fedbb.flower.admin.templates import make_federation
from helpers.commands import fedbb


def wait_until(condition, seconds=90):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_a_port_that_is_taken_is_told_before_anything_is_started(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        federation = LocalFederation(tmp_path / "federation", 0, port=port)
        with pytest.raises(RunError, match=f"127.0.0.1:{port} cannot be listened on.*--port"):
            federation.__enter__()
    assert not federation.folder.path.exists()


def test_a_full_disk_is_told_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "SPACE", 10**18)
    monkeypatch.chdir(tmp_path)
    words = ("flower", "up", "above/federation", "--port", free_port("127.0.0.1"))
    done = fedbb(*words, monkeypatch=monkeypatch)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert done.err.startswith(f"fedbb: the disk of {tmp_path} is full: ")
    assert not list(tmp_path.iterdir())


def test_the_disk_of_a_site_counts_too(tmp_path, monkeypatch):
    federation = LocalFederation(tmp_path / "federation", 1)
    make_federation(federation.folder, 1)
    asked = []
    monkeypatch.setattr(local, "check_space", lambda path, least: asked.append(path))
    monkeypatch.setattr(local, "check_port", lambda host, port: None)
    monkeypatch.setattr(local, "check_server", stop)
    with pytest.raises(RunError, match="no further"):
        federation.__enter__()
    folder = federation.folder
    assert asked == [folder.path, folder.server, folder.site(0).path]


def stop(*_):
    raise RunError("no further")


@pytest.mark.flower
def test_nodes_are_not_waited_for_on_a_disk_that_has_become_full(federation, monkeypatch):
    monkeypatch.setattr(local, "RESERVE", 10**18)
    never = SimpleNamespace(name="site-9", program=federation.superlink)
    with pytest.raises(RunError, match=f"the disk of {federation.folder.server} is full"):
        federation.wait_for_nodes([never], 5.0)


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
