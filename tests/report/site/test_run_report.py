"""The page as a file: whole, the same for the same runs, and honest when there is nothing."""

import json
import re

import pytest

from fedbb.errors import RunError
from fedbb.report.groups import gather, group
from fedbb.report.site.run_report import diagnostics, setting, write_report
from helpers.page_reader import PageReader
from helpers.run_builder import Sketch, build_all, write


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
    assert "of 10 classes (one each), held by 6 clients" in told


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
