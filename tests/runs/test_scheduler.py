import contextlib
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from fedbb.errors import RunError
from fedbb.runs import scheduler
from fedbb.runs.folder import RunFolder
from fedbb.runs.scheduler import EventKind, RunEvent, run_all, run_job, run_jobs
from helpers.small_run import finish, small_recipe


def jobs_of(folder, number, **changes):
    recipe = small_recipe(folder, engine="inline", **changes)
    return [
        (recipe.model_copy(update={"seed": seed}), folder / f"run-{seed}") for seed in range(number)
    ]


def endless(folder):
    return small_recipe(folder, engine="inline", rounds={"number": 100000}), folder / "endless"


def spoil(path):
    path.mkdir()
    (path / "holiday.jpg").touch()


def test_runs_side_by_side_tell_what_happens_in_order_and_give_the_bits_of_runs_alone(tmp_path):
    jobs = jobs_of(tmp_path, 3)
    events = list(run_jobs(jobs, workers=2))
    begun = [event.path for event in events if event.kind is EventKind.BEGUN]
    assert begun == [path for _, path in jobs]
    for recipe, path in jobs:
        mine = [(event.kind, event.round) for event in events if event.path == path]
        rounds = [(EventKind.ROUND, number) for number in (1, 2, 3, 4)]
        assert mine == [(EventKind.BEGUN, 0), *rounds, (EventKind.FINISHED, 0)]
        alone, _ = finish(recipe, tmp_path / f"alone-{recipe.seed}")
        assert RunFolder(path).read_json("summary.json") == alone


def test_a_run_whose_engine_would_start_processes_gets_one_here(tmp_path):
    recipe = small_recipe(tmp_path, rounds={"number": 1})
    engines = ("auto", "pool")
    jobs = [(recipe.model_copy(update={"engine": name}), tmp_path / name) for name in engines]
    assert list(run_all(jobs, workers=1)) == [tmp_path / name for name in engines]
    alone, _ = finish(recipe.model_copy(update={"engine": "inline"}), tmp_path / "alone")
    for name in engines:
        assert RunFolder(tmp_path / name).read_json("summary.json") == alone


def test_a_killed_process_costs_only_the_run_it_had_at_hand(tmp_path):
    jobs = [endless(tmp_path), *jobs_of(tmp_path, 2)]
    spoil(tmp_path / "run-0")
    ends = {}
    with contextlib.closing(run_jobs(jobs, workers=1)) as happening:
        for event in happening:
            if event.path.name == "endless" and event.round == 2:
                (child,) = multiprocessing.active_children()
                os.kill(child.pid, signal.SIGKILL)
            ends[event.path.name] = event
    assert ends["endless"].kind is ends["run-0"].kind is EventKind.FAILED
    assert "killed by SIGKILL" in ends["endless"].message
    assert "such as holiday.jpg" in ends["run-0"].message
    assert ends["run-1"].kind is EventKind.FINISHED
    assert len(RunFolder(tmp_path / "endless").records()) >= 2


def test_runs_that_fail_are_told_of_when_the_others_are_finished(tmp_path):
    good, bad = jobs_of(tmp_path, 2, rounds={"number": 1})
    spoil(bad[1])
    finished = run_all([bad, good], workers=1)
    assert next(finished) == good[1]
    with pytest.raises(RunError, match=r"run-1: .* such as holiday\.jpg"):
        next(finished)


def test_one_cause_that_stops_all_runs_is_named_three_times(monkeypatch):
    def fail(jobs, workers):
        for _, path in jobs:
            yield RunEvent(path, EventKind.FAILED, "no space")

    monkeypatch.setattr(scheduler, "run_jobs", fail)
    jobs = [(None, Path(f"run-{number}")) for number in range(5)]
    with pytest.raises(RunError, match=r"^run-0: no space; .*; run-2: no space; and 2 more$"):
        list(run_all(jobs))


def test_closing_ends_the_processes_and_leaves_runs_that_go_on(tmp_path):
    recipe, path = endless(tmp_path)
    with contextlib.closing(run_jobs([(recipe, path)], workers=1)) as events:
        while next(events).kind is not EventKind.ROUND:
            pass
    assert multiprocessing.active_children() == []
    assert RunFolder(path).latest().round <= len(RunFolder(path).records())


def test_no_jobs_have_no_events():
    assert list(run_jobs([])) == []


def test_an_error_of_no_kind_of_ours_is_news_too(tmp_path):
    ((recipe, path),) = jobs_of(tmp_path, 1)
    broken = recipe.model_copy(update={"rounds": None})
    (*_, last) = run_job((broken, path))
    assert last.kind is EventKind.FAILED
    assert last.message.startswith("AttributeError: ")


def test_a_warning_is_told_once(tmp_path):
    ((recipe, path),) = jobs_of(tmp_path, 1)
    events = run_job((recipe, path))
    while next(events).round < 3:
        pass
    events.close()
    newest = path / "checkpoints" / "round-000003.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    warned = [event for event in run_job((recipe, path)) if event.kind is EventKind.WARNING]
    assert len(warned) == 1
    assert "the one before it is used" in warned[0].message
