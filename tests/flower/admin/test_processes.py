"""Processes of a federation: started, ended, and never left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fedbb.flower.admin import processes
from fedbb.flower.admin.processes import OFFLINE, Group, environment

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


def test_what_is_meant_for_other_programs_is_not_handed_on(tmp_path, monkeypatch):
    for name in ("FORWARDED_ALLOW_IPS", "AWS_SECRET_ACCESS_KEY", "FLWR_HOME", "SSLKEYLOGFILE"):
        monkeypatch.setenv(name, "operator")
    for name in ("CUDA_VISIBLE_DEVICES", "FEDBB_DATA", "LC_ALL", "HOME"):
        monkeypatch.setenv(name, "kept")
    handed = environment(tmp_path)
    assert "operator" not in handed.values()
    assert list(handed.values()).count("kept") == 4
