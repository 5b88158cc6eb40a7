"""Runs are found, read, and compared only with their like."""

import json
import shutil

import numpy as np
import pytest
from torch import nn

import fedbb
from fedbb.errors import RunError
from fedbb.report.groups import gather, group, read_group
from fedbb.report.results import find_runs, read_runs
from fedbb.rng import torch_stream
from fedbb.runs.sweep import note_failure
from helpers.rights import denied
from helpers.run_builder import Sketch, build, build_all


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
    with pytest.raises(RunError, match="different classes"):
        comparisons(tmp_path, Sketch(classes=("a", "b")), Sketch("fedbb", classes=("a", "c")))


def test_a_method_of_a_later_version_keeps_its_name_and_comes_last(tmp_path):
    later = {"method": {"name": "fedwow"}}
    (found,) = comparisons(tmp_path, Sketch(recipe=later), Sketch("fedbb"), Sketch("fedavg"))
    assert [part.label for part in found.methods] == ["FedAvg", "FedBB", "fedwow"]


def runs(root, method, seeds, **changes):
    return [
        build(root / f"{method}-{seed}", Sketch(method=method, seed=seed, rounds=2, **changes))
        for seed in seeds
    ]


def test_a_run_folder_is_a_group_of_one_run(tmp_path):
    (path,) = runs(tmp_path, "fedavg", [3])
    group_of = read_group(str(path))
    assert group_of.seeds == (3,)
    assert group_of.of_seed(3).path == path


def test_a_folder_of_runs_is_a_group_in_the_order_of_seeds(tmp_path):
    runs(tmp_path / "inner", "fedavg", [10, 9, 2])
    assert read_group(str(tmp_path)).seeds == (2, 9, 10)


@pytest.mark.parametrize("pattern", ["fedbb-*", "**/fedbb-[0-9]", "fedbb-?"])
def test_a_pattern_chooses_runs(tmp_path, pattern, monkeypatch):
    runs(tmp_path, "fedavg", [0, 1])
    runs(tmp_path, "fedbb", [0, 1, 2])
    assert read_group(str(tmp_path / pattern)).seeds == (0, 1, 2)
    monkeypatch.chdir(tmp_path)
    assert read_group(pattern).seeds == (0, 1, 2)


def test_runs_with_other_settings_do_not_mix(tmp_path):
    runs(tmp_path, "fedavg", [0])
    runs(tmp_path, "fedbb", [1])
    with pytest.raises(RunError, match=r"method\.name: fedavg, fedbb\).*pattern in quotes"):
        read_group(str(tmp_path))


def test_where_clients_ran_does_not_part_runs(tmp_path):
    recipe = {"engine": "inline"}
    runs(tmp_path, "fedavg", [0])
    runs(tmp_path, "fedavg", [1], recipe=recipe)
    assert read_group(str(tmp_path)).seeds == (0, 1)


def test_a_seed_counts_once(tmp_path):
    runs(tmp_path / "one", "fedavg", [0])
    runs(tmp_path / "two", "fedavg", [0])
    with pytest.raises(RunError, match=r"hold the same run \(seed 0\)"):
        read_group(str(tmp_path))


def test_unfinished_and_damaged_runs_of_a_group_are_left_out_and_named(tmp_path):
    runs(tmp_path, "fedavg", [0, 1])
    runs(tmp_path, "fedbb", [2], finished=False)
    (tmp_path / "fedavg-1" / "rounds.jsonl").write_text("nonsense\n")
    group_of = read_group(str(tmp_path))
    assert group_of.seeds == (0,)
    assert ["fedavg-1" in group_of.notes[0], "fedbb-2: is unfinished" in group_of.notes[1]] == [
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nowhere", "nowhere does not exist; give a run folder"),
        ("empty/a.toml", "empty/a.toml is not a folder; give a run folder"),
        ("no*where", "holds no finished run; give a run folder"),
        ("**x", "is not a pattern"),
        ("empty", "holds no finished run"),
        ("half", "is unfinished; continue with: fedbb run --resume half"),
        ("half*", "left out: half: is unfinished"),
    ],
)
def test_what_is_no_group_is_an_error(tmp_path, monkeypatch, given, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.toml").touch()
    build(tmp_path / "half", Sketch(rounds=1, finished=False))
    with pytest.raises(RunError) as caught:
        read_group(given)
    assert message in str(caught.value)


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
    with pytest.raises(RunError, match="is not a folder; give run folders"):
        gather([tmp_path / "missing"])


UNREADABLE = "cannot be read: Permission denied; give your user the rights to read and to enter it"


@pytest.mark.parametrize("mode", [0o000, 0o111, 0o444])
def test_an_unreadable_folder_is_named_and_the_others_are_used(tmp_path, mode):
    build(tmp_path / "runs" / "a", Sketch(seed=0))
    build(tmp_path / "runs" / "other" / "b", Sketch(seed=1))
    closed = tmp_path / "runs" / "other"
    with denied(closed, mode=mode):
        for found in (gather([tmp_path]), gather([tmp_path / "runs"])):
            assert [run.path.name for run in found.runs] == ["a"]
            (left,) = found.left_out
            assert left.path.parts[-2:] in (closed.parts[-2:], (closed / "b").parts[-2:])
            assert left.reason in (UNREADABLE, UNREADABLE.removesuffix("it") + str(closed))
        named = read_group(str(tmp_path / "runs"))
        assert named.seeds == (0,)
        (note,) = named.notes
        assert note == f"left out: {left}"
        with pytest.raises(RunError, match=UNREADABLE.removesuffix("it")):
            list(find_runs(tmp_path))


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_an_unreadable_run_among_those_of_a_pattern_is_named(tmp_path, mode):
    build(tmp_path / "a", Sketch(seed=0))
    closed = build(tmp_path / "b", Sketch(seed=1))
    with denied(closed, mode=mode):
        found = read_group(f"{tmp_path}/*")
        assert found.seeds == (0,)
        assert found.notes == (f"left out: {closed}: {UNREADABLE}",)
        with pytest.raises(RunError, match=UNREADABLE):
            read_group(str(closed))


def python_run(folder, *, hidden=8, seed=0, method="fedavg", examples=40):
    """Run a federation from Python whose recipe tells neither its network's size nor its data."""
    rng = np.random.default_rng(examples)
    inputs, labels = rng.random((examples, 4), np.float32), np.arange(examples) % 2
    data = fedbb.Dataset.from_arrays(inputs, labels, inputs, labels, name="rows")
    clients = fedbb.partition.iid(data, clients=2, seed=seed)
    layers = (nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 2))
    with torch_stream(seed, "test"):
        network = nn.Sequential(*layers)
    fedbb.simulate(data, clients, model=network, method=method, rounds=1, seed=seed, out=folder)
    return folder


def test_python_runs_that_differ_in_first_weights_alone_are_not_taken_for_one(tmp_path):
    python_run(tmp_path / "a")
    python_run(tmp_path / "b", hidden=16)
    found = gather([tmp_path])
    assert [run.path.name for run in found.runs] == ["a"]
    (left,) = found.left_out
    assert left.path.name == "b"
    assert "a, but another network or other first weights; report it apart" in left.reason
    with pytest.raises(RunError, match="another network or other first weights; use one of them"):
        read_group(str(tmp_path))


def test_python_runs_of_several_seeds_and_methods_belong_together(tmp_path):
    python_run(tmp_path / "a")
    python_run(tmp_path / "b", seed=1)
    python_run(tmp_path / "c", method="fedbb")
    found = gather([tmp_path])
    assert found.left_out == ()
    (compared,) = group(found.runs)
    assert {part.method: part.seeds for part in compared.methods} == {
        "fedavg": (0, 1),
        "fedbb": (0,),
    }
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    (left,) = gather([tmp_path]).left_out
    assert "holds the same run as" in left.reason


def test_python_runs_on_other_data_are_not_compared(tmp_path):
    python_run(tmp_path / "a")
    python_run(tmp_path / "b", method="fedbb", examples=60)
    (left,) = gather([tmp_path]).left_out
    assert left.path.name == "b"
    assert "but other data" in left.reason
