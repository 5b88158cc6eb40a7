import pytest

from fedbb.errors import RunError
from fedbb.report.sides import read_side
from helpers.run_builder import Sketch, build


def runs(root, method, seeds, **changes):
    return [
        build(root / f"{method}-{seed}", Sketch(method=method, seed=seed, rounds=2, **changes))
        for seed in seeds
    ]


def test_a_run_folder_is_a_side_of_one_run(tmp_path):
    (path,) = runs(tmp_path, "fedavg", [3])
    side = read_side(str(path))
    assert side.seeds == (3,)
    assert side.of_seed(3).path == path


def test_a_folder_of_runs_is_a_side_in_the_order_of_seeds(tmp_path):
    runs(tmp_path / "inner", "fedavg", [10, 9, 2])
    assert read_side(str(tmp_path)).seeds == (2, 9, 10)


@pytest.mark.parametrize("pattern", ["fedbb-*", "**/fedbb-[0-9]", "fedbb-?"])
def test_a_pattern_chooses_runs(tmp_path, pattern, monkeypatch):
    runs(tmp_path, "fedavg", [0, 1])
    runs(tmp_path, "fedbb", [0, 1, 2])
    assert read_side(str(tmp_path / pattern)).seeds == (0, 1, 2)
    monkeypatch.chdir(tmp_path)
    assert read_side(pattern).seeds == (0, 1, 2)


def test_runs_with_other_settings_do_not_mix(tmp_path):
    runs(tmp_path, "fedavg", [0])
    runs(tmp_path, "fedbb", [1])
    with pytest.raises(RunError, match=r"method\.name: fedavg, fedbb\).*pattern in quotes"):
        read_side(str(tmp_path))


def test_where_clients_ran_does_not_part_runs(tmp_path):
    recipe = {"engine": "inline"}
    runs(tmp_path, "fedavg", [0])
    runs(tmp_path, "fedavg", [1], recipe=recipe)
    assert read_side(str(tmp_path)).seeds == (0, 1)


def test_a_seed_counts_once(tmp_path):
    runs(tmp_path / "one", "fedavg", [0])
    runs(tmp_path / "two", "fedavg", [0])
    with pytest.raises(RunError, match=r"holds seed 0 twice"):
        read_side(str(tmp_path))


def test_unfinished_and_damaged_runs_of_a_group_are_left_out_and_named(tmp_path):
    runs(tmp_path, "fedavg", [0, 1])
    runs(tmp_path, "fedbb", [2], finished=False)
    (tmp_path / "fedavg-1" / "rounds.jsonl").write_text("nonsense\n")
    side = read_side(str(tmp_path))
    assert side.seeds == (0,)
    assert ["fedavg-1" in side.notes[0], "fedbb-2 is unfinished" in side.notes[1]] == [True, True]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nowhere", "nowhere does not exist; give a run folder"),
        ("no*where", "holds no finished run; give a run folder"),
        ("**x", "is no pattern"),
        ("empty", "holds no finished run"),
        ("half", "is unfinished; go on with: fedbb run --resume half"),
        ("half*", "left out: half is unfinished"),
    ],
)
def test_what_is_no_side_is_told(tmp_path, monkeypatch, given, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    build(tmp_path / "half", Sketch(rounds=1, finished=False))
    with pytest.raises(RunError) as caught:
        read_side(given)
    assert message in str(caught.value)
