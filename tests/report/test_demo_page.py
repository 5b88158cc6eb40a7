"""The demo's page from run folders to files, from made-up runs and from real ones."""

import json

import pytest
from PIL import Image

from fedbb.errors import RunError
from fedbb.recipes.reader import make_recipe
from fedbb.report.demo_page import write_demo
from fedbb.report.results import read_run, read_runs
from fedbb.runs.runner import run
from helpers.page_reader import PageReader
from helpers.run_builder import LEVELS, Sketch, build_all, write

EVIL = '<script>alert("x")</script>\'&'


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Return the folder of a page over two data sets, with hostile names and an unfinished run."""
    out = tmp_path_factory.mktemp("demo")
    sketches = [Sketch(method, seed) for method in LEVELS for seed in (0, 1)]
    sketches += [
        Sketch(method, seed, f"mosaic {EVIL}".replace("/", "÷"), "multilabel", (EVIL, "b", "c"))
        for method in LEVELS
        for seed in (0, 1)
    ]
    folders = build_all(out / "runs", [*sketches, Sketch("fedbb", seed=7, finished=False)])
    federation = json.loads((folders[0] / "federation.json").read_text())
    write(folders[0] / "federation.json", federation | {"notes": [f"client 0 has {EVIL}"]})
    assert write_demo(read_runs(folders), out) == out / "index.html"
    return out


@pytest.fixture(scope="module")
def page(demo):
    return PageReader((demo / "index.html").read_text("utf-8"))


def test_the_page_is_sound_and_runs_nothing(page):
    assert page.faults == []
    assert "script" not in page.tags()
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    links = page.attributes("href") + page.attributes("xlink:href")
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    assert all(link.startswith(("#", "data:image/png")) for link in links)


def test_words_come_before_tables_and_figures_and_the_environment_last(page):
    titles = page.text("h2")
    assert titles[0] == "Summary"
    assert titles[1] == "digits, long tail 0.1, label skew 0.3, 6 clients"
    assert titles[2].startswith("mosaic <script>")
    assert titles[3:] == ["Methods", "Settings and runs", "Environment"]
    tags = page.tags()
    assert tags.index("p") < tags.index("table") < tags.index("svg")


def test_names_from_outside_are_read_as_words(page):
    assert any(EVIL in text for text in page.text("p"))
    assert any("<script>" in text for text in page.text("text"))


def test_every_data_set_has_its_four_figures_as_svg_and_png(demo, page):
    assert page.tags().count("svg") == 8
    names = sorted(path.name for path in (demo / "figures").iterdir())
    kinds = ("classes", "curves", "partition", "weights")
    assert names[:4] == [f"1-digits-{kind}.png" for kind in kinds]
    assert [name[:9] for name in names[4:]] == ["2-mosaic-"] * 4
    for name in names:
        with Image.open(demo / "figures" / name) as image:
            image.verify()


def test_verdict_figures_and_commands_are_on_the_page(demo, page):
    results = json.loads((demo / "results.json").read_text("utf-8"))
    words = " ".join(page.text("p", "td", "pre")).replace("\xa0", " ")
    for part in results["comparisons"]:
        for sentence in part["verdict"]:
            assert words.count(sentence) == 2  # in the summary and in its section
    assert "fedbb run runs/digits-fedavg-0-0/recipe.json --out again/digits-fedavg-0-0" in words


def test_json_and_markdown_tell_the_same_story(demo):
    results = json.loads((demo / "results.json").read_text("utf-8"))
    text = (demo / "results.md").read_text("utf-8")
    first = results["comparisons"][0]
    assert first["data"] in text
    assert first["verdict"][0].split(" (")[0] in text
    mean = next(row for row in first["rows"] if row["method"] == "FedBB")["final"]["mean"]
    assert f"| FedBB | {100 * mean:.1f} ± " in text
    assert results["unfinished"] == ["digits-fedbb-7-12"]
    assert "digits-fedbb-7-12" in text


def test_a_page_is_written_over_and_the_same_runs_give_the_same_bytes(tmp_path):
    runs = read_runs(build_all(tmp_path / "runs", [Sketch(classes=("a", "b\ud800"), clients=2)]))
    (tmp_path / "index.html").write_text("an older page")
    first = write_demo(runs, tmp_path).read_bytes()
    assert first.startswith(b"<!DOCTYPE html>")
    assert write_demo(runs, tmp_path).read_bytes() == first


def test_nothing_finished_is_nothing_to_report(tmp_path):
    runs = read_runs(build_all(tmp_path, [Sketch(finished=False)]))
    with pytest.raises(RunError, match="no finished run"):
        write_demo(runs, tmp_path / "out")


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    runs = read_runs(build_all(tmp_path / "runs", [Sketch()]))
    (tmp_path / "out").write_text("a file")
    with pytest.raises(RunError, match=r"cannot be written to .*out"):
        write_demo(runs, tmp_path / "out")


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
    last = read_run(folders[-1])
    assert last.summary is not None
    final = records[-1]["scores"]["test"]["macro"]["balanced_accuracy"]
    assert last.summary.final.scores["test"].macro["balanced_accuracy"] == final
    reader = PageReader(write_demo(read_runs(folders), tmp_path).read_text("utf-8"))
    assert reader.faults == []
    assert reader.tags().count("svg") == 4
    assert f"{100 * final:.1f}" in reader.text("td")
