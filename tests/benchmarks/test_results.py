"""A result of a busy machine does not get into the repository."""

import os
import subprocess
import sys

import pytest

from benchmarks import environments, frameworks, machine, results


def test_other_programs_are_noticed():
    burn = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"
    with subprocess.Popen([sys.executable, "-c", burn]) as process:
        assert machine.foreign_load(1.0) > 0.3
        process.wait()


def test_a_busy_machine_ends_a_measurement_before_it_begins(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "foreign_load", lambda: 1.5)
    with pytest.raises(SystemExit, match=r"other programs use 1\.50 cores"):
        results.expect_quiet(results.FOLDER)
    results.expect_quiet(tmp_path)
    monkeypatch.setattr(machine, "foreign_load", lambda: 0.1)
    results.expect_quiet(results.FOLDER)


def test_a_result_is_refused_if_the_machine_became_busy(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "foreign_load", lambda: 1.5)
    monkeypatch.setattr(results, "FOLDER", (tmp_path / "results").resolve())
    monkeypatch.setattr(results, "REFUSED", tmp_path / "refused")
    assert results.write("x", {}, results.FOLDER) == tmp_path / "refused" / "x.json"
    assert not results.FOLDER.exists()
    assert results.write("x", {}, tmp_path / "trial").parent == tmp_path / "trial"


def test_a_framework_without_its_python_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(environments, "PEERS", tmp_path)
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path / "made")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "requirements.txt").write_text("one\n")
    (tmp_path / "one" / "python.txt").write_text("9.99\n")
    assert environments.make("one") == "needs Python 9.99, which is not on this machine"


def test_a_framework_runs_in_the_session_of_the_benchmark(tmp_path):
    # A session has a share of the cores of its own, however many processes it has.
    line = 'json.dumps({"at": time.monotonic(), "session": os.getsid(0)})'
    program = f"import json, os, time; print('ROUND ' + {line})"
    record = frameworks.run([sys.executable, "-c", program], tmp_path, watch=False)
    assert record["rounds"][0]["session"] == os.getsid(0)


def test_every_framework_has_its_app():
    for peer in frameworks.PEERS.values():
        assert (environments.PEERS / peer.folder / "app.py").exists()


@pytest.fixture
def newer_python(monkeypatch, tmp_path):
    """A framework that asks for a Python that is not here; returns what pip was asked for."""
    monkeypatch.setattr(environments, "PEERS", tmp_path)
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path / "made")
    monkeypatch.setattr(environments.subprocess, "run", lambda command, **_: None)
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(environments, "_install", lambda _, *words: asked.append(words))
    folder = tmp_path / "one"
    folder.mkdir()
    (tmp_path / "made" / "one").mkdir(parents=True)
    (folder / "requirements.txt").write_text("numpy\n")
    (folder / "alone.txt").write_text("one\n")
    (folder / "python.txt").write_text("9.99\n")
    return folder, asked


def test_a_framework_for_a_newer_python_runs_on_this_one_if_it_can_be_made_to(newer_python):
    folder, asked = newer_python
    (folder / "older.py").write_text("")
    assert environments.make("one") == folder.parent / "made" / "one" / "bin" / "python"
    torch, others, alone = asked
    assert torch[0].startswith("torch==")
    assert "--ignore-requires-python" not in others
    assert alone[:2] == ("--no-deps", "--ignore-requires-python")


def test_without_older_py_nothing_is_installed(newer_python):
    _, asked = newer_python
    assert environments.make("one") == "needs Python 9.99, which is not on this machine"
    assert asked == []


def test_type_parameters_of_functions_are_taken_out_for_an_older_python(tmp_path):
    package = tmp_path / "blazefl"
    package.mkdir()
    (package / "__init__.py").write_text("")
    text = "def name[T](\n    one: T, other: dict[str, int]\n) -> T:\n    return one\n"
    (package / "utils.py").write_text(text)
    script = environments.PEERS / "blazefl" / "older.py"
    program = "from blazefl.utils import name; print(name('same', {}))"
    path = {"PYTHONPATH": str(tmp_path)}
    for words in ([str(script)], ["-c", program]):
        done = subprocess.run(
            [sys.executable, *words], env=path, capture_output=True, text=True, check=True
        )
    assert done.stdout == "same\n"
    assert "dict[str, int]" in (package / "utils.py").read_text()
