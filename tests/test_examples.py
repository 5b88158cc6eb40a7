"""The examples run as a user would run them, on their own and without a warning."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedbb

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def run(name: str) -> str:
    script = next(path for path in EXAMPLES if path.name == name)
    command = [sys.executable, "-W", "error", "-X", "utf8", str(script)]
    # One thread each: the tests themselves already run on every core.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, encoding="utf-8", timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def results(output: str) -> dict[str, list[float]]:
    """Return the three-digit figures of each line `name: ...`."""
    lines = (line.split(":", 1) for line in output.splitlines() if ":" in line)
    return {
        name: [float(figure) for figure in re.findall(r"\d\.\d{3}", rest)] for name, rest in lines
    }


def test_plain_loop_shows_its_weights_and_beats_guessing_with_every_loss():
    output = run("plain_loop.py")
    table, recalls = output.splitlines()[:11], results(output)
    assert table[0].split()[:3] == ["class", "A", "B"]
    counts = [int(row.split()[1]) for row in table[1:]]
    assert counts == [100, 64, 41, 27, 17, 11, 7, 4, 3, 2]
    assert list(recalls) == ["CE", "PNB", "PNB, effective"]
    assert all(0.1 < recall <= 1.0 for (recall,) in recalls.values())


def test_multilabel_loop_finds_more_rare_digits_with_pnb_and_says_what_that_costs():
    figures = results(run("multilabel_loop.py"))
    assert list(figures) == ["BCE", "PNB"]
    (bce_found, bce_left_out), (pnb_found, pnb_left_out) = figures.values()
    assert pnb_found > bce_found + 0.1
    assert 0.5 < pnb_left_out < bce_left_out <= 1.0


def test_own_loss_trains_a_federation_in_another_way_than_the_plain_loss():
    figures = results(run("own_loss.py"))
    assert list(figures) == ["FedAvg", "RootBalanced"]
    (plain,), (own,) = figures.values()
    assert plain != own
    assert min(plain, own) > 0.3


def test_fedbb_by_hand_ends_with_the_model_of_the_simulation():
    output = run("fedbb_by_hand.py")
    assert float(output.split()[-1]) < 1e-6
    assert float(re.search(r"accuracy (\d\.\d+)", output).group(1)) > 0.2


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_an_example_imports_public_names_only(script):
    public = {"fedbb", *(f"fedbb.{package}" for package in fedbb._PACKAGES)}
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedbb"):
            assert node.module in public


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_example_has_fewer_than_fifty_lines(script):
    assert len(script.read_text(encoding="utf-8").splitlines()) < 50


def test_every_example_is_run_above():
    names = [path.stem for path in EXAMPLES]
    assert names == ["fedbb_by_hand", "multilabel_loop", "own_loss", "plain_loop"]
