"""The examples run as scripts, without a warning; one of them in a process of its own."""

import ast
import io
import re
import runpy
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

import fedbb

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def path_of(name: str) -> str:
    return next(str(path) for path in EXAMPLES if path.name == name)


def start(name: str, *, quiet: bool = True) -> str:
    """Run an example as a user would; return what it printed.

    `quiet` forbids warnings, which other libraries may have.
    """
    strict = ["-W", "error"] if quiet else []
    command = [sys.executable, *strict, "-X", "utf8", path_of(name)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "" or not quiet
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


@pytest.mark.slow
def test_multilabel_loop_finds_more_rare_digits_with_pnb_and_says_what_that_costs():
    figures = results(run("multilabel_loop.py"))
    assert list(figures) == ["BCE", "PNB"]
    (bce_found, bce_left_out), (pnb_found, pnb_left_out) = figures.values()
    assert pnb_found > bce_found + 0.1
    assert 0.5 < pnb_left_out < bce_left_out <= 1.0


@pytest.mark.slow
def test_own_loss_trains_a_federation_in_another_way_than_the_plain_loss():
    figures = results(start("own_loss.py"))
    assert list(figures) == ["FedAvg", "RootBalanced"]
    (plain,), (own,) = figures.values()
    assert plain != own
    assert min(plain, own) > 0.3


def test_segmentation_mask_finds_more_of_the_rare_class_than_cross_entropy():
    figures = results(run("segmentation_mask.py"))
    assert list(figures) == ["CE", "PNB", "logit adjustment"]
    (plain,), (pnb,), (adjusted,) = figures.values()
    assert min(pnb, adjusted) > plain + 0.1


def test_lightning_loop_learns_and_saves_the_network_alone():
    pytest.importorskip("lightning", reason="the example needs Lightning")
    output = start("lightning_loop.py", quiet=False)
    assert results(output)["accuracy"][0] > 0.8
    saved = next(line for line in output.splitlines() if line.startswith("saved:"))
    assert saved.split()[1:] == ["net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"]


def test_transformers_trainer_finds_the_rare_class():
    pytest.importorskip("transformers", reason="the example needs Hugging Face's transformers")
    pytest.importorskip("accelerate", reason="Hugging Face's Trainer needs accelerate")
    assert results(start("transformers_trainer.py", quiet=False))["recall"][0] > 0.8


def test_fedbb_by_hand_ends_with_the_model_of_the_simulation():
    output = run("fedbb_by_hand.py")
    assert float(output.split()[-1]) < 1e-6
    assert float(re.search(r"accuracy (\d\.\d+)", output).group(1)) > 0.2


def test_hospital_sites_trains_by_site_and_is_validated_outside():
    first, _, output = run("hospital_sites.py").partition("\n")
    assert "among 3 clients (column)" in first
    found = results(output)
    assert list(found) == ["hospitals", "outside, malignant", "outside, benign"]
    assert all(score > 0.8 for (score,) in found.values())


@pytest.mark.slow
def test_public_data_learns_what_is_installed_and_names_what_is_not():
    lines = run("public_data.py").splitlines()
    assert len({line.split(",")[0].split()[0] for line in lines}) == 3
    wines = results("\n".join(line for line in lines if line.startswith("wines")))
    assert min(score for (score,) in wines.values()) > 0.8
    others = [line for line in lines if not line.startswith("wines")]
    for line in others:
        found = re.search(r": (\d\.\d{3}) balanced accuracy, (\d+) classes", line)
        assert line.endswith("not installed") or float(found[1]) > 1.2 / int(found[2])


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
    assert names == [
        "fedbb_by_hand",
        "hospital_sites",
        "lightning_loop",
        "multilabel_loop",
        "own_loss",
        "plain_loop",
        "public_data",
        "segmentation_mask",
        "transformers_trainer",
    ]
