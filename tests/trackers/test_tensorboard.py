import pytest

from fedbb.trackers.export import Feed, export
from fedbb.trackers.registry import TensorBoardLog, last_round
from helpers.tracker_module import HOSTILE, cut, finished, mend, records

pytest.importorskip("tensorboard", reason="tensorboard is not installed")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def place(folder):
    (found,) = (folder / "tensorboard").iterdir()
    return found


def read(folder):
    """Return (step, value) pairs by tag, as TensorBoard's own reader tells them."""
    events = EventAccumulator(str(place(folder)), size_guidance={"scalars": 0})
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_the_packages_own_reader_finds_every_round(tmp_path):
    path = finished(tmp_path / "run")
    export(TensorBoardLog(tmp_path), path)
    found = read(tmp_path)
    scored = [record["scores"]["test"] for record in records(path)]
    accuracy = [(number, scores["macro"]["accuracy"]) for number, scores in enumerate(scored, 1)]
    assert found["test/accuracy"] == [(step, pytest.approx(value)) for step, value in accuracy]
    recall = scored[-1]["per_class"]["recall"][0]
    assert found["test/recall/plain"][-1] == (4, pytest.approx(recall))
    assert found["clients/weight/0"][0] == (1, pytest.approx(1 / 6))
    assert found["final/round"] == [(5, 4.0)]
    assert sum(tag.startswith("test/recall/") for tag in found) == len(HOSTILE)


def test_the_recipe_is_kept_as_a_text(tmp_path):
    export(TensorBoardLog(tmp_path), finished(tmp_path / "run"))
    events = EventAccumulator(str(place(tmp_path)))
    events.Reload()
    (text,) = events.Tensors("recipe/text_summary")
    assert b"    method.name = 'fedavg'" in text.tensor_proto.string_val[0]


def test_a_resumed_run_has_each_step_once(tmp_path):
    path = finished(tmp_path / "run")
    rest = cut(path, 2)
    export(TensorBoardLog(tmp_path), path)
    mend(path, rest)
    assert export(TensorBoardLog(tmp_path), path) == 2
    assert export(TensorBoardLog(tmp_path), path) == 0
    steps = {tag: [step for step, _ in points] for tag, points in read(tmp_path).items()}
    assert steps["test/f1"] == steps["clients/weight/5"] == [1, 2, 3, 4]
    assert steps["final/round"] == steps["best/test/f1"] == [5]


def test_a_round_torn_by_a_crash_is_written_again_whole(tmp_path):
    path = finished(tmp_path / "run")
    torn = TensorBoardLog(tmp_path)
    feed = Feed(torn, path)
    for record in records(path)[:2]:
        feed.record(record)
    torn.writer.add_scalar("test/f1", 0.5, feed.last + 1)
    torn.writer.close()
    export(TensorBoardLog(tmp_path), path)
    assert [step for step, _ in read(tmp_path)["test/f1"]] == [1, 2, 3, 4]


def test_a_new_run_of_the_same_name_replaces_the_old_one(tmp_path):
    path = finished(tmp_path / "run")
    export(TensorBoardLog(tmp_path), path)
    feed = Feed(TensorBoardLog(tmp_path), path, is_new=True)
    feed.end(is_finished=True)
    assert [step for step, _ in read(tmp_path)["round"]] == [1, 2, 3, 4]


def test_a_place_without_events_holds_no_round(tmp_path):
    assert last_round(tmp_path) == last_round(tmp_path / "nowhere") == 0
