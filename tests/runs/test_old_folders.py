"""Run folders of fedbb 0.1.0, written before the package was reorganized, can still be used.

The archive holds a finished and an unfinished run of MOON+FedBB (3 rounds, 3 clients). To be small,
the checkpoint and the clients' states of round 2 hold a repeating pattern in place of weights, and
the finished run, which went on from them, has no model files.
"""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy
import pytest
import torch

from fedbb.runs.folder import RunFolder
from helpers.commands import fedbb

ARCHIVE = Path(__file__).parent / "data" / "run_folders_0.1.0.tar.xz"
# One instruction set, so that newer processors give the bits of older ones.
INSTRUCTIONS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}


@pytest.fixture
def folder(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    # These tests are about the format, so the run is one of the versions installed here.
    path = tmp_path / "unfinished" / "environment.json"
    versions = {"torch": torch.__version__, "numpy": numpy.__version__}
    path.write_text(json.dumps(json.loads(path.read_text()) | versions))
    return tmp_path


def resume(folder):
    """Resume a run in a process of its own, since torch chooses its instructions at its import."""
    answer = subprocess.run(
        [sys.executable, "-m", "fedbb", "run", "--resume", "unfinished", "--json"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **INSTRUCTIONS},
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout.splitlines()[-1])


def test_an_unfinished_run_resumes_to_the_model_it_would_have_had(folder):
    expected = RunFolder(folder / "finished")
    assert resume(folder) == expected.read_json("summary.json")
    assert [record["round"] for record in RunFolder(folder / "unfinished").records()] == [1, 2, 3]


def test_a_finished_run_is_shown(folder, monkeypatch):
    shown = json.loads(fedbb("show", folder / "finished", "--json", monkeypatch=monkeypatch).out)
    assert shown["federation"] == RunFolder(folder / "finished").read_json("federation.json")
    assert shown["recipe"] == RunFolder(folder / "finished").read_json("recipe.json")


def test_a_finished_run_is_reported(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert "1 run in report.html" in fedbb("report", "finished", monkeypatch=monkeypatch).out
    assert "moon+fedbb" in (folder / "report.html").read_text("utf-8").lower()
