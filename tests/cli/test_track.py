import json
import signal

import pytest

from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from fedbb.trackers import registry
from fedbb.trackers.registry import Kind
from helpers.commands import fedbb, started
from helpers.run_builder import Sketch, build
from helpers.small_run import small_recipe
from helpers.tracker_module import Broken


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.json"
    path.write_text(small_recipe(tmp_path, engine="inline").model_dump_json())
    return path


def rounds_in(folder):
    """Return the steps of every TensorBoard run in a folder, by the package's own reader."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = []
    for place in sorted((folder / "tensorboard").iterdir()):
        events = EventAccumulator(str(place))
        events.Reload()
        found.append([event.step for event in events.Scalars("test/balanced_accuracy")])
    return found


def test_a_run_is_tracked_while_it_goes_on_and_leaves_its_folder_alone(recipe, monkeypatch):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    words = ("run", recipe, "--out", "run", "--track", "tensorboard", "--quiet")
    assert fedbb(*words, monkeypatch=monkeypatch).code == 0
    assert rounds_in(recipe.parent / "tracking") == [[1, 2, 3, 4]]
    assert fedbb("run", "--resume", "run", "--quiet", monkeypatch=monkeypatch).code == 0


def test_a_resumed_run_is_tracked_from_its_beginning(recipe, monkeypatch):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    records = run(small_recipe(recipe.parent, engine="inline"), recipe.parent / "run")
    next(records)
    records.close()
    for _ in range(2):
        words = ("run", "--resume", "run", "--track", "tensorboard=logs", "--quiet")
        assert fedbb(*words, monkeypatch=monkeypatch).code == 0
    assert rounds_in(recipe.parent / "logs") == [[1, 2, 3, 4]]


def test_a_tracker_that_fails_does_not_stop_the_run(recipe, monkeypatch):
    monkeypatch.setitem(registry.TRACKERS, "broken", Kind("json", lambda _: Broken()))
    done = fedbb("run", recipe, "--out", "run", "--track", "broken", monkeypatch=monkeypatch)
    assert done.code == 0
    assert done.out.count("the run continues: the disk is full") == 1
    assert RunFolder(recipe.parent / "run").read_json("summary.json")["rounds"] == 4


@pytest.mark.slow
def test_ctrl_c_leaves_whole_rounds_in_the_tracker(recipe):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    words = ("run", recipe, "--set", "rounds.number=500", "--out", "run", "--track", "tensorboard")
    with started(*words, cwd=recipe.parent) as process:
        for line in process.stdout:
            if line.startswith("round 3/"):
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
    done = len(RunFolder(recipe.parent / "run").records())
    (steps,) = rounds_in(recipe.parent / "tracking")
    assert steps == list(range(1, len(steps) + 1))
    assert done - 1 <= len(steps) <= done


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--track", "tensorbord"], "did you mean tensorboard?"),
        (["--track", "tensorboard=run"], "would write into the run folder run"),
    ],
)
def test_a_tracker_that_cannot_be_used_is_told_before_the_run(recipe, monkeypatch, words, message):
    done = fedbb("run", recipe, "--out", "run", *words, monkeypatch=monkeypatch)
    assert (done.code, (recipe.parent / "run").exists()) == (2, False)
    assert message in done.err


def test_runs_on_disk_are_sent_once(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    runs = [build(tmp_path / f"seed{seed}", Sketch(seed=seed, rounds=3)) for seed in (0, 1)]
    words = ("track", *runs, "--to", f"tensorboard={tmp_path / 'logs'}")
    done = fedbb(*words, monkeypatch=monkeypatch)
    assert done.out.count("3 rounds sent") == 2
    again = fedbb(*words, "--json", monkeypatch=monkeypatch)
    assert [entry["rounds"] for entry in json.loads(again.out)] == [0, 0]
    assert rounds_in(tmp_path / "logs") == [[1, 2, 3], [1, 2, 3]]


def test_quiet_prints_nothing(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    path = build(tmp_path / "run", Sketch(rounds=1))
    words = ("track", path, "--to", f"tensorboard={tmp_path}", "--quiet")
    done = fedbb(*words, monkeypatch=monkeypatch)
    assert (done.code, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["EMPTY", "--to", "tensorboard"], "is not a run folder"),
        (["EMPTY", "--to", "tensorboard="], "NAME=FOLDER"),
        (["EMPTY", "--to", "comet"], "tracker 'comet' is unknown"),
        (["EMPTY"], "--to"),
    ],
)
def test_what_cannot_be_tracked_is_told_with_exit_code_2(tmp_path, monkeypatch, words, message):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "EMPTY").mkdir()
    done = fedbb("track", *words, monkeypatch=monkeypatch)
    assert done.code == 2
    assert message in done.err
