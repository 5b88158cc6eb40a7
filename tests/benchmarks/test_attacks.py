"""The experiment on lying clients runs at a tiny size; no score is judged."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TINY = ["--rounds", "1", "--images", "140", "--seeds", "1", "--clients", "7", "--liars", "1"]
FEW = ["--concentration", "20", "--workers", "1", "--attacks", "nobody lies", "false labels"]


@pytest.mark.slow
def test_scores_are_told_by_attack_and_rule(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.attacks", *TINY, *FEW, "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "attacks.json").read_text(encoding="utf-8"))
    scores = result["balanced_accuracy"]
    assert list(scores) == ["nobody lies", "false labels"]
    for rules in scores.values():
        assert [*rules] == ["plain mean", "clip", "median", "trimmed-mean", "krum", "multi-krum"]
        assert all(0 <= score <= 1 for (score,) in rules.values())
    assert (result["clients"], result["liars"], result["seeds"]) == (7, 1, 1)
    assert "| nobody lies | " in done.stdout
