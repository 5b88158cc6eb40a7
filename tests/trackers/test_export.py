import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import RecipeError, RunError
from fedbb.runs.folder import RunFolder
from fedbb.trackers import registry
from fedbb.trackers.export import (
    Feed,
    class_names,
    clean,
    describe,
    export,
    measures,
    summary_measures,
    tracking,
)
from fedbb.trackers.registry import Kind
from helpers.tracker_module import HOSTILE, Broken, Memory, cut, finished, mend, records


def test_a_finished_run_is_sent_whole_with_its_summary(tmp_path):
    path, tracker = finished(tmp_path / "run"), Memory()
    assert export(tracker, path) == 4
    assert tracker.rounds == [1, 2, 3, 4]
    (summary,) = tracker.endings
    assert summary["final/round"] == 4
    assert tracker.run.settings["method.name"] == "fedavg"


def test_rounds_that_the_tracker_holds_are_not_sent_again(tmp_path):
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
    with pytest.raises(RunError, match=r"is not a run folder"):
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


RECORD = {
    "round": 3,
    "clients": [
        {"client": 0, "weight": 0.25, "steps": 5, "train_loss": 2.0},
        {"client": 7, "weight": 0.75, "steps": 9, "train_loss": 1.0},
    ],
    "scores": {
        "test": {
            "samples": 9,
            "macro": {"accuracy": 0.5, "f1": None},
            "per_class": {"recall": [1.0, None]},
            "defined": {"accuracy": 2, "f1": 0},
        }
    },
    "seconds": {"train": 0.5, "score": 0.25},
}


def test_of_clients_that_are_hidden_there_are_no_measures():
    hidden = [
        {"client": client, "weight": None, "steps": None, "train_loss": None} for client in range(3)
    ]
    found = measures({**RECORD, "clients": hidden}, ["cat", "dog"])
    assert not any(name.startswith(("clients/", "train/")) for name in found)
    assert found["test/accuracy"] == 0.5


def test_a_record_becomes_named_measures_with_the_round_last():
    found = measures(RECORD, ["cat", "dog"])
    assert found == {
        "test/accuracy": 0.5,
        "test/recall/cat": 1.0,
        "clients/weight/0": 0.25,
        "clients/steps/0": 5.0,
        "clients/train_loss/0": 2.0,
        "clients/weight/7": 0.75,
        "clients/steps/7": 9.0,
        "clients/train_loss/7": 1.0,
        "train/loss": 0.25 * 2.0 + 0.75 * 1.0,
        "seconds/train": 0.5,
        "seconds/score": 0.25,
        "round": 3.0,
    }
    assert list(found)[-1] == "round"


def test_a_number_that_is_not_finite_is_left_out():
    broken = {**RECORD, "seconds": {"train": float("inf"), "score": float("nan")}}
    assert not any(name.startswith("seconds") for name in measures(broken, ["cat", "dog"]))


def test_a_summary_keeps_best_and_final_apart():
    scores = RECORD["scores"]
    summary = {"best": {"round": 2, "scores": scores}, "final": {"round": 3, "scores": scores}}
    assert summary_measures(summary) == {
        "best/round": 2.0,
        "best/test/accuracy": 0.5,
        "final/round": 3.0,
        "final/test/accuracy": 0.5,
    }


def test_hostile_class_names_are_cleaned_and_told_apart():
    hostile = ["<script>", "a/../b", "a b", "a_b", "Ödem", "肺炎", "", "x" * 500, "..", "a_b-3"]
    assert class_names(hostile) == [
        "script",
        "a_b",
        "a_b-2",
        "a_b-3",
        "Odem",
        "class-5",
        "class-6",
        "x" * 60,
        "class-8",
        "a_b-3-9",
    ]


@given(st.lists(st.text(max_size=80), max_size=30))
def test_class_names_are_distinct_and_of_safe_signs_only(classes):
    names = class_names(classes)
    assert len(set(names)) == len(names) == len(classes)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in names)


@given(st.text(max_size=80))
def test_cleaning_twice_changes_nothing(text):
    assert clean(clean(text)) == clean(text)


@pytest.fixture
def opened(monkeypatch):
    """Offer trackers that need no package, and return those that were opened, by name."""
    found = {}

    def offer(name, kind):
        def build(folder):
            found[name] = kind()
            return found[name]

        # json stands for a package that is certainly there.
        monkeypatch.setitem(registry.TRACKERS, name, Kind("json", build))

    offer("memory", Memory)
    offer("broken", Broken)
    return found


def follow(path, wanted, told):
    with tracking(wanted, path, told.append) as trackers:
        for record in records(path):
            trackers.record(record)


def test_a_tracker_that_fails_is_told_once_and_the_others_go_on(tmp_path, opened):
    path, told = finished(tmp_path / "run", rounds=6), []
    follow(path, ["broken", "memory"], told)
    assert opened["memory"].rounds == [1, 2, 3, 4, 5, 6]
    assert opened["memory"].endings[0]["final/round"] == 6
    assert opened["broken"].rounds == [1, 2, 3]
    (message,) = told
    assert message.startswith(
        "warning: broken stopped tracking, the run continues: the disk is full"
    )
    assert message.endswith(f"fedbb track {path} --to broken")


def test_a_run_that_breaks_off_is_closed_without_a_summary(tmp_path, opened):
    path = finished(tmp_path / "run")

    def stopped():
        with tracking(["memory"], path, print) as trackers:
            trackers.record(records(path)[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert opened["memory"].endings == [None]


def test_only_a_folder_without_a_run_makes_a_new_one(tmp_path, opened):
    path = finished(tmp_path / "run")
    rest = cut(path, 2)
    follow_nothing = (path / "recipe.json").read_text()
    (path / "recipe.json").unlink()
    with tracking(["memory"], path, print) as trackers:
        (path / "recipe.json").write_text(follow_nothing)
        mend(path, rest)
        trackers.record(records(path)[0])
    assert opened["memory"].run.is_new
    follow(path, ["memory"], [])
    assert not opened["memory"].run.is_new


def test_a_run_that_had_finished_before_is_sent_too(tmp_path, opened):
    with tracking(["memory"], finished(tmp_path / "run"), print):
        pass
    assert opened["memory"].rounds == [1, 2, 3, 4]


def test_no_tracker_writes_into_the_run_folder(tmp_path, opened):
    path = finished(tmp_path / "run")
    for place in (path, path / "inner"):
        with (
            pytest.raises(RecipeError, match=r"would write into the run folder"),
            tracking([f"memory={place}"], path, print),
        ):
            pass
