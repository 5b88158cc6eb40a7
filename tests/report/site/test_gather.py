"""Looking runs up: every folder is either used or left out with a reason."""

import json
import shutil

import pytest

from fedbb.errors import RunError
from fedbb.report.groups import group
from fedbb.report.site.gather import find_runs, gather
from fedbb.runs.sweep import note_failure
from helpers.run_builder import Sketch, build, build_all


def reasons(gathered):
    return {item.path.name: item.reason for item in gathered.left_out}


def test_runs_are_found_at_any_depth_and_in_order(tmp_path):
    deep = build(tmp_path / "a" / "b" / "run", Sketch(seed=1))
    shallow = build(tmp_path / "c", Sketch(seed=2))
    build(tmp_path / ".hidden" / "run", Sketch(seed=3))
    assert list(find_runs(tmp_path)) == [deep, shallow]
    assert list(find_runs(deep)) == [deep]


def test_a_folder_inside_a_run_is_no_run_of_its_own(tmp_path):
    run = build(tmp_path / "run", Sketch())
    build(run / "checkpoints" / "odd", Sketch(seed=1))
    assert list(find_runs(tmp_path)) == [run]


def test_unfinished_and_damaged_runs_are_left_out_with_the_reason(tmp_path):
    build_all(tmp_path, [Sketch("fedavg"), Sketch("fedbb")])
    build(tmp_path / "unfinished", Sketch(seed=2, finished=False, recipe={"rounds": {"number": 9}}))
    (build(tmp_path / "no-recipe", Sketch(seed=3)) / "recipe.json").unlink()
    (build(tmp_path / "torn", Sketch(seed=4)) / "summary.json").write_text("{")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "recipe.json").write_text('{"flour": "500 g"}')
    gathered = gather([tmp_path])
    found = reasons(gathered)
    assert len(gathered.runs) == 2
    assert found["unfinished"] == "is unfinished: 6 of 9 rounds"
    assert "has no recipe.json" in found["no-recipe"]
    assert "summary.json cannot be read" in found["torn"]
    assert "cannot be used" in found["foreign"]


def test_why_a_run_failed_is_told(tmp_path):
    path = build(tmp_path / "run", Sketch(finished=False))
    note_failure(path, "loss is not finite in round 7")
    assert "it failed: loss is not finite in round 7" in reasons(gather([tmp_path]))["run"]


def test_the_same_run_twice_counts_once_and_the_copy_is_named(tmp_path):
    first = build(tmp_path / "first", Sketch())
    shutil.copytree(first, tmp_path / "second")
    gathered = gather([tmp_path])
    assert [run.path for run in gathered.runs] == [first]
    assert reasons(gathered) == {"second": f"holds the same run as {first}"}
    group(gathered.runs)


def test_a_folder_named_twice_is_no_double(tmp_path):
    path = build(tmp_path / "run", Sketch())
    gathered = gather([tmp_path, path, tmp_path / ".." / tmp_path.name])
    assert len(gathered.runs) == 1
    assert gathered.left_out == ()


def test_a_run_on_data_that_changed_is_left_out(tmp_path):
    first, second = build_all(tmp_path, [Sketch("fedavg"), Sketch("fedbb")])
    facts = json.loads((second / "federation.json").read_text())
    facts["classes"] = [f"new {name}" for name in facts["classes"]]
    (second / "federation.json").write_text(json.dumps(facts))
    gathered = gather([tmp_path])
    assert reasons(gathered) == {second.name: f"has other classes than {first}"}
    group(gathered.runs)


def test_a_folder_without_runs_is_named_and_a_missing_one_refused(tmp_path):
    assert reasons(gather([tmp_path])) == {tmp_path.name: "holds no run"}
    with pytest.raises(RunError, match="is no folder; give run folders"):
        gather([tmp_path / "missing"])
