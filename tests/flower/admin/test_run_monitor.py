"""Following a run from its folder, while its server may come and go."""

import json
import time
from collections import deque
from pathlib import Path
from threading import Event, Thread

import pytest

from fedbb.cli.flower import _stopped
from fedbb.errors import RunError
from fedbb.flower.admin import run_monitor as following
from fedbb.flower.admin.control import Run
from fedbb.flower.admin.paths import FederationFolder
from fedbb.flower.admin.run_monitor import RunMonitor, located, run_config
from fedbb.runs.folder import RunFolder, hold
from helpers.small_run import small_recipe


class Server:
    """Answers as the SuperLink of a run does; what happens meanwhile is given as steps."""

    def __init__(self, *steps, said=()):
        self.steps = deque(steps)
        self.said = said
        self.stopped = []

    def run(self, number):
        step = self.steps.popleft() if len(self.steps) > 1 else self.steps[0]
        status = step() if callable(step) else step
        if status is None:
            raise RunError("no server answers")
        return Run(number, status, "", {}, "", "", 0, 0)

    def log(self, number):
        yield from ((text, 0.0) for text in self.said)

    def stop(self, number):
        self.stopped.append(number)
        self.steps = deque(["finished:stopped"])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(following, "POLL_SECONDS", 0.05)
    return RunFolder(tmp_path)


def committing(folder, number, status="running"):
    def step():
        with folder.file("rounds.jsonl").open("a") as lines:
            lines.write(json.dumps({"round": number}) + "\n")
        return status

    return step


def test_rounds_are_yielded_as_they_are_committed_and_the_ending_is_kept(folder):
    last = committing(folder, 2, "finished:completed")
    run = RunMonitor(Server("pending", committing(folder, 1), "running", last), 7, folder.path)
    assert [news["round"] for news in run if not isinstance(news, str)] == [1, 2]
    assert run.ending.status == "finished:completed"


def test_rounds_of_before_are_not_told_again(folder):
    committing(folder, 1)()
    run = RunMonitor(Server(committing(folder, 2, "finished:completed")), 7, folder.path)
    assert [news["round"] for news in run] == [2]


def test_a_server_that_does_not_answer_for_a_while_is_waited_for(folder):
    server = Server("running", None, None, committing(folder, 1, "finished:completed"))
    run = RunMonitor(server, 7, folder.path)
    assert list(run) == [
        "no server answers; waiting up to 120 s for it",
        "the server responds again",
        {"round": 1},
    ]


@pytest.mark.timeout(30)
def test_a_server_that_is_gone_ends_the_waiting_with_a_message(folder, monkeypatch):
    monkeypatch.setattr(following, "GONE_SECONDS", 0.3)
    run = RunMonitor(Server("running", None), 7, folder.path)
    with pytest.raises(RunError, match=r"no server answers; it has not responded .* --resume"):
        list(run)


def test_what_fedbb_tells_is_passed_on_and_what_records_tell_is_not(folder):
    said = (
        "INFO : Starting\nfedbb: 3 sites, 705 samples\n",
        "fedbb: round 1 of 3: 3 clients\nfedbb: round 1: client 2 is left out: late\n",
        "fedbb: round 1: client 2 had lost its memory of round 3 and trained without\n",
    )
    run = RunMonitor(Server("running", "finished:failed", said=said), 7, folder.path)
    assert list(run) == [
        "3 sites, 705 samples",
        "round 1: client 2 had lost its memory of round 3 and trained without",
    ]


def test_a_run_is_stopped(folder):
    server = Server("running")
    RunMonitor(server, 7, folder.path).stop()
    assert server.stopped == [7]


def finish_round(place, held, seconds):
    """Set up a run and finish a round, as a server app may that has just been stopped."""
    with hold(place) as folder:
        held.set()
        time.sleep(seconds)
        folder.write_json("recipe.json", {})
        committing(folder, 1)()
        folder.file("checkpoints/round-0001.safetensors").touch()


def test_a_stopped_run_is_waited_for_until_its_server_app_writes_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(following, "POLL_SECONDS", 0.05)
    place, held = tmp_path / "run", Event()
    app = Thread(target=finish_round, args=(place, held, 0.5))
    app.start()
    held.wait()
    folder = RunFolder(place)
    assert folder.is_held()
    assert not folder.is_run()
    RunMonitor(Server("running"), 7, place).stop()
    told = _stopped(folder, small_recipe(tmp_path), FederationFolder(tmp_path))
    app.join()
    assert told.startswith("stopped after round 1 of ")
    assert not folder.is_held()


def test_a_server_app_that_does_not_end_is_not_waited_for_for_long(tmp_path, monkeypatch):
    monkeypatch.setattr(following, "POLL_SECONDS", 0.05)
    with hold(tmp_path / "run") as folder:
        RunMonitor(Server("running"), 7, folder.path).stop(0.2)
        assert folder.is_held()


class Late(Server):
    """A server whose run ends by itself just before it is stopped, unless it goes on."""

    def stop(self, number):
        raise RunError("rejected: the run is finished")


def test_a_run_that_ended_while_it_was_to_be_stopped_is_no_error(folder):
    RunMonitor(Late("finished:completed"), 7, folder.path).stop()
    with pytest.raises(RunError, match="rejected"):
        RunMonitor(Late("running"), 7, folder.path).stop()


def test_paths_that_lead_somewhere_no_longer_depend_on_where_one_is(tmp_path, monkeypatch):
    recipe = small_recipe(tmp_path)
    monkeypatch.chdir(tmp_path)
    data = recipe.data.model_copy(update={"path": "small.npz"})
    recipe = recipe.model_copy(update={"data": data})
    assert located(recipe).data.path == str(tmp_path / "small.npz")
    elsewhere = recipe.model_copy(
        update={"data": data.model_copy(update={"path": "at/the/site.npz"})}
    )
    assert located(elsewhere) == elsewhere
    config = run_config(recipe, Path("run"), resume=True, score="sites")
    assert json.loads(config["recipe"])["data"]["path"] == str(tmp_path / "small.npz")
    assert config["folder"] == str(tmp_path / "run")
    assert config["resume"] is True
