"""Run folders are read back whole, and refused by name when they are not."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbb.errors import RunError
from fedbb.records import Task
from fedbb.report.results import RunResult, read_run, read_runs, scores_by_round
from helpers.run_builder import Sketch, build, write

FILES = ("recipe.json", "federation.json", "environment.json", "rounds.jsonl", "summary.json")


def change(folder: Path, name: str, **values: object) -> None:
    path = folder / name
    write(path, json.loads(path.read_text()) | values)


def test_a_run_comes_back_as_it_was_written(tmp_path):
    run = read_run(build(tmp_path / "run", Sketch("fedbb", seed=3, rounds=4, clients=5)))
    plain = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    assert (run.recipe.method.name, run.recipe.seed, run.federation.task) == (
        "fedbb",
        3,
        Task.MULTICLASS,
    )
    assert [finished.number for finished in run.rounds] == [1, 2, 3, 4]
    for finished, record in zip(run.rounds, plain, strict=True):
        assert finished.scores["test"].macro == record["scores"]["test"]["macro"]
    assert run.summary is not None
    assert run.summary.final.scores["test"].macro == plain[-1]["scores"]["test"]["macro"]
    assert run.summary.chosen_on == "test"
    assert run.seconds == pytest.approx(4 * 0.75)
    assert sum(client.weight for client in run.federation.known) == pytest.approx(1)
    assert run.environment["cores"] == "2"


def test_an_undefined_class_is_read_as_nan(tmp_path):
    run = read_run(build(tmp_path / "run", Sketch(undefined=(2,))))
    recall = run.rounds[0].scores["test"].per_class["recall"]
    assert np.flatnonzero(np.isnan(recall)).tolist() == [2]


def test_the_best_round_is_labelled_by_the_data_it_was_chosen_on(tmp_path):
    run = read_run(build(tmp_path / "run", Sketch(validation=True)))
    assert run.summary is not None
    assert run.summary.chosen_on == "validation"


def test_an_unfinished_run_has_no_summary(tmp_path):
    run = read_run(build(tmp_path / "run", Sketch(finished=False, rounds=3)))
    assert run.summary is None
    assert len(run.rounds) == 3


def test_a_line_torn_by_a_crash_is_left_out(tmp_path):
    folder = build(tmp_path / "run", Sketch(finished=False, rounds=3))
    text = (folder / "rounds.jsonl").read_text()
    (folder / "rounds.jsonl").write_text(text[:-40])
    assert len(read_run(folder).rounds) == 2


def test_a_run_that_was_only_set_up_has_no_rounds(tmp_path):
    folder = build(tmp_path / "run", Sketch(finished=False))
    (folder / "rounds.jsonl").unlink()
    assert read_run(folder).rounds == ()


def test_runs_keep_the_order_of_their_folders(tmp_path):
    paths = [build(tmp_path / str(seed), Sketch(seed=seed)) for seed in (4, 1, 2)]
    assert [run.recipe.seed for run in read_runs(paths)] == [4, 1, 2]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere", "it does not exist"),
        ("empty", "it has no recipe.json"),
        ("foreign", "it has no recipe.json"),
        ("foreign/letters.txt", "it is a file"),
    ],
)
def test_a_folder_that_is_no_run_is_refused_by_name(tmp_path, name, why):
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "letters.txt").write_text("private")
    with pytest.raises(RunError, match=f"{name} is not a run folder: {why}"):
        read_run(tmp_path / name)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", "null", '{"a": 1}', "\xff\xfe", "Infinity\n"]
)
def test_a_file_with_other_content_is_refused_with_the_folder_named(tmp_path, name, content):
    folder = build(tmp_path / "spoilt", Sketch(rounds=2, clients=2))
    (folder / name).write_bytes(content.encode("latin-1"))
    if name == "environment.json" and content == '{"a": 1}':
        assert read_run(folder).environment == {"a": "1"}
        return
    with pytest.raises(RunError, match="spoilt"):
        read_run(folder)


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("federation.json", {"classes": ["a", "b"]}, "counts 10 of 2 classes"),
        ("federation.json", {"task": "regression"}, "regression"),
        ("federation.json", {"train": float("inf")}, "infinity"),
        ("summary.json", {"metric": "luck"}, "a metric that was not scored: luck"),
        ("summary.json", {"final": {"round": 9, "scores": {}}}, "9 rounds, rounds.jsonl 2"),
        ("recipe.json", {"metod": {}}, "metod is unknown"),
    ],
)
def test_files_that_contradict_each_other_are_refused_with_the_reason(
    tmp_path, name, values, reason
):
    folder = build(tmp_path / "run", Sketch(rounds=2, clients=2))
    change(folder, name, **values)
    with pytest.raises(RunError, match=reason):
        read_run(folder)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda records: records[::-1], "rounds 1, 2, 3"),
        (lambda records: records[:1], "has 2 rounds, rounds.jsonl 1"),
        (lambda records: [records[0] | {"scores": {}}, records[1]], "no scores on test data"),
    ],
)
def test_rounds_that_are_missing_or_out_of_order_are_refused(tmp_path, spoil, reason):
    folder = build(tmp_path / "run", Sketch(rounds=2, clients=2))
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    lines = "".join(json.dumps(record) + "\n" for record in spoil(records))
    (folder / "rounds.jsonl").write_text(lines)
    with pytest.raises(RunError, match=reason):
        read_run(folder)


def test_scores_of_too_few_classes_are_refused(tmp_path):
    folder = build(tmp_path / "run", Sketch(rounds=1, clients=2))
    record = json.loads((folder / "rounds.jsonl").read_text())
    record["scores"]["test"]["per_class"]["recall"].pop()
    (folder / "rounds.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(RunError, match="not one score for each of 10 classes"):
        read_run(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return build(tmp_path_factory.mktemp("whole") / "run", Sketch(rounds=2, clients=2))


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(FILES), part=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_anywhere_gives_a_run_or_an_error_of_ours(whole, name, part):
    folder = whole.with_name("cut")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(part * len(content))])
    try:
        run = read_run(folder)
    except RunError:
        return
    assert isinstance(run, RunResult)


def test_a_run_that_stopped_early_keeps_its_last_score_by_round(tmp_path):
    sketches = [
        Sketch(rounds=4, seed=0),
        Sketch(rounds=2, seed=1),
        Sketch(rounds=3, seed=2, finished=False),
    ]
    runs = [read_run(build(tmp_path / str(s.seed), s)) for s in sketches]
    table = scores_by_round(runs, "accuracy")
    assert table.shape == (3, 4)
    assert not np.isnan(table[:2]).any()
    assert table[1, 1] == table[1, 2] == table[1, 3] != table[1, 0]
    assert np.isnan(table[2]).tolist() == [False, False, False, True]
