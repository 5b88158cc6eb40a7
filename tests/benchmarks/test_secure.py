"""The cost of secure sums is measured at a tiny size, and put into a page."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tenseal", reason="the statistics are summed under BFV too: fedbb[he]")

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> None:
    command = [sys.executable, "-m", "benchmarks.secure", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_every_kind_of_sum_is_timed_and_weighed(tmp_path: Path) -> None:
    few = ("--clients", "4", "--numbers", "500", "--repeats", "1")
    run(*few, "--out", str(tmp_path))
    (case,) = json.loads((tmp_path / "secure.json").read_text("utf-8"))["cases"]
    assert case["plain"]["client_sent"]["median"] == 4 * 500
    assert case["masked"]["client_sent"]["median"] > 8 * 500
    assert case["statistics_bfv"]["client_sent"]["median"] > 50_000
    for kind in ("masked", "one_gone", "statistics_masked", "statistics_bfv"):
        figures = case[kind]
        assert figures["total_seconds"]["median"] > figures["server_seconds"]["median"] > 0
    page = tmp_path / "page.md"
    page.write_text("Cost\n<!-- cost -->\nend\n", encoding="utf-8")
    for _ in range(2):
        run("--out", str(tmp_path), "--page", str(page))
    assert page.read_text("utf-8").count("| client time |") == 1
    assert "| 4 | masked, one dropout |" in page.read_text("utf-8")


@pytest.mark.slow
def test_a_sum_with_a_sparse_graph_is_timed_with_its_dropouts(tmp_path: Path) -> None:
    run("--sparse", "50", "--numbers", "500", "--repeats", "1", "--out", str(tmp_path))
    (case,) = json.loads((tmp_path / "sparse.json").read_text("utf-8"))["cases"]
    assert (case["clients"], case["gone"], case["neighbours"]) == (50, 2, 14)
    assert case["client_sent"]["median"] > 8 * 500
    assert case["total_seconds"]["median"] > case["server_seconds"]["median"] > 0
    page = tmp_path / "page.md"
    page.write_text("Cost\n<!-- sparse-cost -->\nend\n", encoding="utf-8")
    run("--out", str(tmp_path), "--page", str(page))
    assert "| 50 | 2 | 14 | " in page.read_text("utf-8")
