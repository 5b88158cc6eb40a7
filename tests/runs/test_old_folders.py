"""Run folders of fedbb 0.1.0, written before the package was reorganized, can still be used.

The archive holds a finished and an unfinished run of MOON+FedBB (3 rounds, 3 clients). To be small,
the checkpoint and the clients' states of round 2 hold a repeating pattern in place of weights, and
the finished run, which went on from them, has no model files.
"""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy
import pytest
import torch

from fedbb import read_run, read_runs
from fedbb.runs.folder import RunFolder
from helpers.commands import fedbb
from helpers.kernels import AVX2, PORTABLE, environment, is_amd

PORTABLE_SHA256 = "82a544bf836c54ddceb107a6cd6d246f2a4b1183520de14cb9a26d0b1fdc5a87"
"""Of the resumed run with kernels that every processor has, by commit 0c595a9."""

ARCHIVE = Path(__file__).parent / "data" / "run_folders_0.1.0.tar.xz"


@pytest.fixture
def folder(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    # These tests are about the format, so the run is one of the versions installed here.
    path = tmp_path / "unfinished" / "environment.json"
    versions = {"torch": torch.__version__, "numpy": numpy.__version__}
    path.write_text(json.dumps(json.loads(path.read_text()) | versions))
    return tmp_path


def resume(folder, kernels=PORTABLE):
    """Resume a run in a process of its own, since torch chooses its instructions at its import."""
    answer = subprocess.run(
        [sys.executable, "-m", "fedbb", "run", "--resume", "unfinished", "--json"],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(kernels),
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout.splitlines()[-1])


@pytest.mark.skipif(not is_amd(), reason="the finished run was made on an AMD processor")
def test_an_unfinished_run_resumes_to_the_model_it_would_have_had(folder):
    expected = RunFolder(folder / "finished")
    assert resume(folder, AVX2) == expected.read_json("summary.json")


def test_an_unfinished_run_resumes_to_the_same_model_on_every_processor(folder):
    summary = resume(folder)
    expected = RunFolder(folder / "finished").read_json("summary.json")
    assert summary["sha256"] == PORTABLE_SHA256
    assert summary.keys() == expected.keys()
    assert [record["round"] for record in RunFolder(folder / "unfinished").records()] == [1, 2, 3]


def test_a_finished_run_is_shown(folder, monkeypatch):
    shown = json.loads(fedbb("show", folder / "finished", "--json", monkeypatch=monkeypatch).out)
    assert shown["federation"] == RunFolder(folder / "finished").read_json("federation.json")
    assert shown["recipe"] == RunFolder(folder / "finished").read_json("recipe.json")


def test_rounds_of_the_first_versions_are_read(folder):
    path = folder / "finished" / "rounds.jsonl"
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    for record in records:
        del record["absent"]  # only later versions count the clients that did not answer
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = read_run(folder / "finished")
    assert [one.absent for one in found.history] == [()] * 3
    assert read_runs(folder)["finished"].tolist() == [True, False]


def test_a_finished_run_is_reported(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert "1 run in report.html" in fedbb("report", "finished", monkeypatch=monkeypatch).out
    assert "moon+fedbb" in (folder / "report.html").read_text("utf-8").lower()
