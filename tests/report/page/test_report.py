"""The page as a file: whole, the same for the same runs, and honest when there is nothing."""

import json
import re
import shlex
from pathlib import Path

import pytest

from fedbb.errors import RunError
from fedbb.report.groups import gather, group
from fedbb.report.page.report import (
    common_part,
    diagnostics,
    methods_table,
    repeat_command,
    rest,
    run_settings,
    setting,
    settings_data,
    word,
    write_report,
)
from fedbb.report.results import read_run, read_runs
from helpers.page_reader import PageReader
from helpers.run_builder import LEVELS, Sketch, build_all, write


def data_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL).group(1))


def test_the_page_is_one_sound_file_that_refers_to_nothing(report):
    reader = PageReader(report.read_text(encoding="utf-8"))
    assert reader.faults == []
    assert not {"link", "img", "iframe"} & set(reader.tags())
    assert reader.attributes("src") == []
    assert all(link.startswith("#") for link in reader.attributes("href"))


def test_equal_runs_give_equal_bytes(report, runs, tmp_path):
    write_report(gather([runs]), tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == report.read_bytes()


def test_its_data_tells_of_every_run_and_of_what_was_left_out(report):
    data = data_of(report)
    assert len(data["runs"]["runs"]) == 11
    assert len(data["left_out"]) == 2
    assert [len(one["methods"]) for one in data["comparisons"]] == [3, 2]


def test_the_setting_is_told_in_a_sentence(runs):
    comparison = group(gather([runs]).runs)[0]
    told = setting(comparison)
    assert told.endswith("6 rounds of 1 local epoch with small-cnn, learning rate 0.01.")
    assert "10 classes (multi-class), 6 clients" in told


def test_remarks_name_the_runs_they_hold_for(tmp_path):
    paths = build_all(tmp_path, [Sketch(seed=seed) for seed in range(2)])
    for path in paths:
        facts = json.loads((path / "federation.json").read_text())
        write(path / "federation.json", {**facts, "notes": ["client 3 is empty"]})
    (comparison,) = group(gather(paths).runs)
    assert diagnostics(comparison) == ["Client 3 is empty (FedAvg, seed 0; FedAvg, seed 1)."]


def test_without_a_finished_run_the_reasons_are_given(tmp_path):
    build_all(tmp_path, [Sketch(seed=seed, finished=False) for seed in range(5)])
    with pytest.raises(RunError, match=r"no finished run to report; .*unfinished.*; and 2 more"):
        write_report(gather([tmp_path]), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_common_and_own_settings_together_are_all_settings(tmp_path):
    recipe = {"local": {"lr": 0.5}}
    paths = build_all(tmp_path, [Sketch("fedavg", 0), Sketch("fedbb", 1, recipe=recipe)])
    write(paths[1] / "environment.json", {"fedbb": "0.1.0", "torch": "3.0", "cores": 2})
    runs = read_runs(paths)
    found = settings_data(runs, tmp_path)
    for run, told in zip(runs, found["runs"], strict=True):
        assert {**found["settings"], **told["settings"]} == run_settings(run)
        assert {**found["environment"], **told["environment"]} == dict(run.environment)
    assert set(found["runs"][1]["settings"]) == {"seed", "method.name", "local.lr"}
    assert found["runs"][1]["environment"] == {"torch": "3.0"}


def test_a_setting_only_one_run_has_is_not_common():
    common = common_part([{"a": "1", "b": "2"}, {"a": "1"}])
    assert common == {"a": "1"}
    assert rest({"a": "1", "b": "2"}, common) == {"b": "2"}


def test_settings_read_as_in_a_recipe():
    assert [word(value) for value in (True, None, {}, 0.5, "x")] == ["true", "–", "–", "0.5", "x"]


def test_methods_are_described_once_each(tmp_path):
    sketches = [Sketch(method, seed) for seed in (0, 1) for method in LEVELS]
    table = methods_table(read_runs(build_all(tmp_path, sketches)))
    assert [row[0] for row in table.rows] == ["FedAvg", "FedAvg-scaled", "FedBB"]
    assert all(row[1] and row[2] == "defaults" for row in table.rows)


def test_the_command_is_typed_beside_the_page_and_names_a_recipe_that_is_there(tmp_path):
    (folder,) = build_all(tmp_path / "my runs", [Sketch()])
    words = shlex.split(repeat_command(read_run(folder), tmp_path))
    assert words[:2] == ["fedbb", "run"]
    assert (tmp_path / words[2]).read_text() == (folder / "recipe.json").read_text()
    assert words[3:] == ["--out", str(Path("again") / folder.name)]


def test_a_run_elsewhere_is_named_by_its_whole_path(tmp_path):
    (folder,) = build_all(tmp_path / "runs", [Sketch()])
    words = shlex.split(repeat_command(read_run(folder), tmp_path / "page"))
    assert words[2] == str(folder / "recipe.json")
