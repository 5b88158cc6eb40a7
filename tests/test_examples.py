"""The examples run as scripts, without a warning; one of them in a process of its own."""

import io
import re
import runpy
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def path_of(name: str) -> str:
    return next(str(path) for path in EXAMPLES if path.name == name)


def start(name: str) -> str:
    """Run an example as a user would; return what it printed."""
    command = [sys.executable, "-W", "error", "-X", "utf8", path_of(name)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def run(name: str) -> str:
    """Run an example in this process, which has torch loaded already; return what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        runpy.run_path(path_of(name), run_name="__main__")
    assert err.getvalue() == ""
    return out.getvalue()


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
    figures = results(start("own_loss.py"))
    assert list(figures) == ["FedAvg", "RootBalanced"]
    (plain,), (own,) = figures.values()
    assert plain != own
    assert min(plain, own) > 0.3


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.name)
def test_example_has_fewer_than_fifty_lines(script):
    assert len(script.read_text(encoding="utf-8").splitlines()) < 50


def test_every_example_is_run_above():
    names = [path.stem for path in EXAMPLES]
    assert names == ["multilabel_loop", "own_loss", "plain_loop"]
