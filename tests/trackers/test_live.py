import pytest

from fedbb.errors import RecipeError
from fedbb.trackers import registry
from fedbb.trackers.live import tracking
from fedbb.trackers.registry import Kind
from helpers.tracker_module import Broken, Memory, cut, finished, mend, records


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


def test_a_run_that_had_finished_before_is_handed_over_too(tmp_path, opened):
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
