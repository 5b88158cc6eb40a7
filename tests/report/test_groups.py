"""Runs are compared only with their like."""

import pytest

from fedbb.errors import RunError
from fedbb.report.collect import read_runs
from fedbb.report.groups import group
from helpers.run_builder import Sketch, build_all


def comparisons(root, *sketches):
    return group(read_runs(build_all(root, sketches)))


def test_runs_are_sorted_by_data_then_method_then_seed(tmp_path):
    sketches = [
        Sketch(method, seed, data, task)
        for seed in (2, 0, 1)
        for method in ("fedbb", "fedavg", "fedavg-scaled")
        for data, task in (("digits", "multiclass"), ("digit-mosaic", "multilabel"))
    ]
    first, second = comparisons(tmp_path, *sketches)
    assert first.title == "digits, long tail 0.1, label skew 0.3, 6 clients"
    assert second.title == "digit-mosaic, label skew 0.3, 6 clients"
    for comparison in (first, second):
        assert [part.label for part in comparison.methods] == ["FedAvg", "FedAvg-scaled", "FedBB"]
        assert {part.seeds for part in comparison.methods} == {(0, 1, 2)}
    assert (first.metric, second.metric) == ("balanced_accuracy", "auroc")


def test_runs_with_other_settings_are_kept_apart_and_titled_by_them(tmp_path):
    found = comparisons(
        tmp_path,
        Sketch("fedavg", recipe={"local": {"lr": 0.01}}),
        Sketch("fedbb", recipe={"local": {"lr": 0.02}}),
        Sketch("fedbb", recipe={"local": {"lr": 0.01}}),
    )
    assert [part.title.split("; ")[1] for part in found] == ["local.lr = 0.01", "local.lr = 0.02"]
    assert [[method.label for method in part.methods] for part in found] == [
        ["FedAvg", "FedBB"],
        ["FedBB"],
    ]


def test_options_are_named_only_where_one_method_has_several(tmp_path):
    (found,) = comparisons(
        tmp_path,
        Sketch("fedavg"),
        Sketch("fedbb"),
        Sketch("fedbb", recipe={"method": {"name": "fedbb", "options": {"mu": 4.0}}}),
    )
    assert [part.label for part in found.methods] == [
        "FedAvg",
        "FedBB (defaults)",
        "FedBB (mu = 4.0)",
    ]


def test_unfinished_runs_are_left_out(tmp_path):
    (found,) = comparisons(tmp_path, Sketch(seed=0), Sketch(seed=1, finished=False))
    assert found.methods[0].seeds == (0,)
    assert comparisons(tmp_path / "other", Sketch(finished=False)) == []


def test_the_same_run_twice_is_refused_with_both_folders(tmp_path):
    with pytest.raises(RunError, match=r"digits-fedavg-0-0 and .*digits-fedavg-0-1 hold the same"):
        comparisons(tmp_path, Sketch(), Sketch())


def test_data_that_changed_behind_the_same_recipe_is_refused(tmp_path):
    with pytest.raises(RunError, match="other classes"):
        comparisons(tmp_path, Sketch(classes=("a", "b")), Sketch("fedbb", classes=("a", "c")))


def test_a_method_of_a_later_version_keeps_its_name_and_comes_last(tmp_path):
    later = {"method": {"name": "fedwow"}}
    (found,) = comparisons(tmp_path, Sketch(recipe=later), Sketch("fedbb"), Sketch("fedavg"))
    assert [part.label for part in found.methods] == ["FedAvg", "FedBB", "fedwow"]
