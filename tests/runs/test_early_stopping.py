"""A run may stop early by its scores on validation data, and resumed it stops at the same round."""

import pytest

from fedbb.cli.grids import headline
from fedbb.errors import RecipeError, RunError
from fedbb.recipes.grid import read_grid
from fedbb.recipes.reader import make_recipe
from fedbb.runs.cost_estimate import Estimate
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from fedbb.runs.sweep import State, statuses
from helpers.commands import fedbb
from helpers.digest_runs import CLIENTS
from helpers.flower_loopback import flower_run, open_loopback, take_identity
from helpers.small_grid import write, write_grid
from helpers.small_run import finish, small_values, without_seconds, write_npz

ROUNDS = 12


def recipe(folder, validation=0.2, **rounds):
    values = small_values(write_npz(folder / "small.npz"))
    data = {**values["data"], "validation": validation}
    return make_recipe({**values, "data": data, "rounds": {"number": ROUNDS, **rounds}})


def scores(records):
    return [record["scores"]["validation"]["macro"]["balanced_accuracy"] for record in records]


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """The records of a run that never stops early."""
    folder = tmp_path_factory.mktemp("endless")
    summary, records = finish(recipe(folder), folder / "run")
    assert "stopped" not in summary
    return records


def end(records, patience):
    """Return the round after which a run with this patience stops."""
    best, since = -1.0, 0
    for number, score in enumerate(scores(records), 1):
        best, since = (score, 0) if score > best else (best, since + 1)
        if since == patience:
            return number
    raise AssertionError("the example never stops; choose another")


def test_a_run_out_of_patience_stops_and_says_why(tmp_path, endless):
    last = end(endless, 2)
    assert last < ROUNDS
    summary, records = finish(recipe(tmp_path, patience=2), tmp_path / "run")
    assert without_seconds(records) == without_seconds(endless[:last])
    assert (summary["stopped"], summary["rounds"]) == ("patience", last)
    assert summary["final"]["round"] == last
    assert summary["best"]["round"] == last - 2


def test_a_run_that_reaches_its_target_stops_and_says_why(tmp_path, endless):
    found = scores(endless)
    target = max(found)
    last = found.index(target) + 1
    assert 1 < last < ROUNDS
    options = {"target": target, "patience": ROUNDS}
    summary, records = finish(recipe(tmp_path, **options), tmp_path / "run")
    assert without_seconds(records) == without_seconds(endless[:last])
    assert (summary["stopped"], summary["rounds"]) == ("target", last)


def test_a_run_left_after_any_round_stops_at_the_same_one(tmp_path, endless):
    last = end(endless, 2)
    chosen = recipe(tmp_path, patience=2)
    whole, expected = finish(chosen, tmp_path / "whole")
    for after in range(last + 1):
        folder = tmp_path / str(after)
        records = run(chosen, folder)
        for _ in range(after):
            next(records)
        records.close()
        assert not (folder / "summary.json").exists()
        resumed, rest = finish(chosen, folder, resume=True)
        assert resumed == whole
        assert [record["round"] for record in rest] == list(range(after + 1, last + 1))
        assert without_seconds(RunFolder(folder).records()) == without_seconds(expected)


def test_a_stopped_run_is_finished_and_more_patience_is_another_recipe(tmp_path):
    before, _ = finish(recipe(tmp_path, patience=2), tmp_path / "run")
    after, more = finish(recipe(tmp_path, patience=2), tmp_path / "run", resume=True)
    assert (after, more) == (before, [])
    with pytest.raises(RunError, match=r"rounds\.patience: 2 before, 3 now"):
        next(run(recipe(tmp_path, patience=3), tmp_path / "run", resume=True))
    with pytest.raises(RunError, match=r"rounds\.patience: 2 before, None now"):
        next(run(recipe(tmp_path), tmp_path / "run", resume=True))


def test_a_run_on_flower_stops_at_the_same_round(tmp_path, monkeypatch, endless):
    take_identity(monkeypatch)
    chosen = recipe(tmp_path, patience=2)
    grid = open_loopback(chosen, CLIENTS, state=str(tmp_path / "state"))
    summary, records = flower_run(chosen, tmp_path / "run", grid)
    assert (summary["stopped"], len(records)) == ("patience", end(endless, 2))


def test_a_sweep_and_the_screen_know_that_a_stopped_run_is_finished(tmp_path, monkeypatch):
    path = write_grid(tmp_path)
    text = path.read_text("utf-8").replace("partition = {", "validation = 0.2\npartition = {")
    text = text.replace("number = 3", f"number = {ROUNDS}\npatience = 2")
    grid = read_grid(write(path, text))
    cell = grid.cells[0]
    costs = Estimate({cell.name: 1.0}, {cell.name: ROUNDS}, {}, at_most=True)
    assert "at most about 12 s" in headline(statuses(grid, tmp_path / "out"), costs)
    _, records = finish(cell.recipe, tmp_path / "out" / cell.name, workers=0)
    status = statuses(grid, tmp_path / "out")[cell.name]
    assert (status.state, status.rounds, status.of) == (State.FINISHED, len(records), ROUNDS)
    told = fedbb("show", tmp_path / "out" / cell.name, monkeypatch=monkeypatch).out
    shown = " ".join(told.split())
    assert f"{len(records)} of {ROUNDS} rounds" in shown
    assert "stopped early: no better score on validation data" in shown


@pytest.mark.parametrize("setting", [{"patience": 3}, {"target": 0.9}])
def test_early_stopping_needs_validation_data(tmp_path, setting):
    chosen = recipe(tmp_path, validation=0.0, **setting)
    with pytest.raises(RecipeError, match=rf"rounds\.{next(iter(setting))} needs data\.validation"):
        next(run(chosen, tmp_path / "run"))
