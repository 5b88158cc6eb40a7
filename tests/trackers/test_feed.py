import re

import pytest

from fedbb.errors import RunError
from fedbb.runs.folder import RunFolder
from fedbb.trackers.feed import Feed, describe, export
from helpers.tracker_module import HOSTILE, Broken, Memory, finished, records


def test_a_finished_run_is_handed_over_whole_with_its_summary(tmp_path):
    path, tracker = finished(tmp_path / "run"), Memory()
    assert export(tracker, path) == 4
    assert tracker.rounds == [1, 2, 3, 4]
    (summary,) = tracker.endings
    assert summary["final/round"] == 4
    assert tracker.run.settings["method.name"] == "fedavg"


def test_rounds_that_the_tracker_holds_are_not_handed_over_again(tmp_path):
    path, tracker = finished(tmp_path / "run"), Memory(held=3)
    assert export(tracker, path) == 1
    assert tracker.rounds == [4]


def test_an_unfinished_run_ends_without_a_summary(tmp_path):
    tracker = Memory()
    assert export(tracker, finished(tmp_path / "run", finished=False)) == 4
    assert tracker.endings == [None]


def test_a_record_is_preceded_by_those_the_tracker_lacks_and_never_repeated(tmp_path):
    path = finished(tmp_path / "run")
    tracker = Memory(held=1)
    feed = Feed(tracker, path)
    for record in records(path)[2:]:
        feed.record(record)
        feed.record(record)
    feed.end(is_finished=True)
    assert tracker.rounds == [2, 3, 4]


def test_a_feed_that_never_began_has_nothing_to_end(tmp_path):
    tracker = Memory()
    Feed(tracker, tmp_path).end(is_finished=False)
    assert tracker.endings == []


def test_every_class_has_its_measures_whatever_its_name(tmp_path):
    tracker = Memory()
    export(tracker, finished(tmp_path / "run"))
    assert sum(name.startswith("test/recall/") for name in tracker.measures) == len(HOSTILE)
    assert "test/recall/plain" in tracker.measures


def test_what_a_tracker_cannot_take_is_an_error_that_names_the_run(tmp_path):
    path = finished(tmp_path / "run")
    with pytest.raises(RunError, match=r"run could not be tracked: the disk is full"):
        export(Broken(), path)


def test_a_folder_that_holds_no_run_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"is no run folder"):
        export(Memory(), tmp_path)


def test_a_damaged_run_is_refused_in_words(tmp_path):
    path = finished(tmp_path / "run")
    (path / "rounds.jsonl").write_text("{}\n")
    with pytest.raises(RunError, match=r"could not be tracked"):
        export(Memory(), path)


def test_runs_are_told_apart_by_name_and_recipe(tmp_path):
    sketches = {"run": {}, "run é <b>": {}, "other": {"seed": 1}}
    paths = [finished(tmp_path / name, **changes) for name, changes in sketches.items()]
    paths.append(finished(tmp_path / "inner" / "run", seed=1))
    identities = [describe(RunFolder(path)).identity for path in paths]
    assert len(set(identities)) == 4
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,57}", identity) for identity in identities)
    again = describe(RunFolder(paths[0])).identity
    assert again == identities[0]


def test_a_name_that_ends_with_the_mark_of_its_recipe_is_kept(tmp_path):
    mark = describe(RunFolder(finished(tmp_path / "run"))).identity.rpartition("-")[2]
    path = finished(tmp_path / f"digits-{mark}")
    assert describe(RunFolder(path)).identity == f"digits-{mark}"
