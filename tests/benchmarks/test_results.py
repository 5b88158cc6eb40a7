"""A result of a busy machine does not get into the repository."""

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


def test_every_framework_has_its_app():
    for peer in frameworks.PEERS.values():
        assert (environments.PEERS / peer.folder / "app.py").exists()
