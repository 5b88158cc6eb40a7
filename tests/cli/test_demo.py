"""`fedbb demo` writes the page of `fedbb report`, with the results as Markdown and JSON."""

import json

import pytest

from fedbb.cli.demo import TITLE, write_demo
from fedbb.errors import RunError
from fedbb.recipes.reader import make_recipe
from fedbb.report.groups import gather
from fedbb.report.page.report import write_report
from fedbb.runs.runner import run
from helpers.commands import fedbb
from helpers.run_builder import LEVELS, Sketch, build_all


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Return a folder with a page over two data sets, and the run folders behind it."""
    out = tmp_path_factory.mktemp("demo")
    sketches = [Sketch(method, seed) for method in LEVELS for seed in (0, 1)]
    sketches += [Sketch(method, 0, "mosaic", "multilabel") for method in LEVELS]
    folders = build_all(out / "runs", [*sketches, Sketch("fedbb", seed=7, finished=False)])
    assert write_demo(folders, out) == out / "index.html"
    return out, folders


def test_the_page_is_that_of_the_report(demo, tmp_path):
    out, folders = demo
    write_report(gather(folders), out / "report.html", TITLE)
    assert (out / "index.html").read_bytes() == (out / "report.html").read_bytes()


def test_json_and_markdown_hold_the_same_results(demo):
    out, _ = demo
    results = json.loads((out / "results.json").read_text("utf-8"))
    text = (out / "results.md").read_text("utf-8")
    first = results["comparisons"][0]
    assert first["data"] in text
    assert first["verdict"][0].split(" (")[0] in text
    mean = next(row for row in first["rows"] if row["method"] == "FedBB")["final"]["mean"]
    assert f"| FedBB | {100 * mean:.1f} ± " in text
    assert results["unfinished"] == ["digits-fedbb-7-9"]
    assert "digits-fedbb-7-9" in text


def test_the_same_runs_give_the_same_bytes(tmp_path):
    folders = build_all(tmp_path / "runs", [Sketch(classes=("a", "b\ud800"), clients=2)])
    (tmp_path / "index.html").write_text("an older page")
    first = write_demo(folders, tmp_path).read_bytes()
    assert first.startswith(b"<!DOCTYPE html>")
    assert write_demo(folders, tmp_path).read_bytes() == first


def test_without_a_finished_run_there_is_no_page(tmp_path):
    folders = build_all(tmp_path, [Sketch(finished=False)])
    with pytest.raises(RunError, match="no finished run"):
        write_demo(folders, tmp_path / "out")


def test_a_place_that_cannot_be_written_is_an_error(tmp_path):
    folders = build_all(tmp_path / "runs", [Sketch()])
    (tmp_path / "out").write_text("a file")
    with pytest.raises(RunError, match="cannot be written"):
        write_demo(folders, tmp_path / "out")


def test_real_runs_become_a_page(tmp_path):
    partition = {"kind": "label-skew", "clients": 3, "concentration": 0.5}
    folders = []
    for method in ("fedavg", "fedbb"):
        recipe = {
            "data": {"name": "digits", "long_tail": 0.1, "partition": partition},
            "method": {"name": method},
            "rounds": {"number": 2},
        }
        folders.append(tmp_path / "runs" / method)
        records = list(run(make_recipe(recipe), folders[-1]))
    final = records[-1]["scores"]["test"]["macro"]["balanced_accuracy"]
    page = write_demo(folders, tmp_path).read_text("utf-8")
    assert f'["{100 * final:.1f}",' in page
    assert "fedbb run runs/fedavg/recipe.json --out again/fedavg" in page


def test_a_folder_that_cannot_be_made_is_one_message_before_any_run(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    done = fedbb("demo", "--out", tmp_path / "file", monkeypatch=monkeypatch)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"fedbb: {tmp_path / 'file'} cannot be written: File exists\n"
