"""How far cells are, told from their folders; and one grid run with everything that goes wrong."""

import shutil

import pytest
from filelock import FileLock

from fedbb.errors import RunError
from fedbb.recipes.grid import read_grid, select
from fedbb.runs.folder import RunFolder, check_foreign
from fedbb.runs.runner import run
from fedbb.runs.scheduler import EventKind
from fedbb.runs.sweep import (
    LOCK,
    State,
    forget_failure,
    note_failure,
    read_failure,
    run_grid,
    statuses,
)
from helpers.small_grid import write_grid


def begin(cell, out, rounds=None):
    """Run a cell here, for this number of rounds or to its end."""
    records = run(cell.recipe.model_copy(update={"engine": "inline"}), out / cell.name)
    for record in records:
        if record["round"] == rounds:
            records.close()


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return read_grid(write_grid(tmp_path_factory.mktemp("grid")))


@pytest.fixture(scope="module")
def finished(grid, tmp_path_factory):
    out = tmp_path_factory.mktemp("finished")
    begin(grid.cells[0], out)
    return out / grid.cells[0].name


@pytest.fixture
def folder(grid, finished, tmp_path):
    """The folder of the first cell, finished, in a folder of its own."""
    return RunFolder(shutil.copytree(finished, tmp_path / finished.name))


def status(grid, folder):
    return statuses(grid, folder.path.parent)[folder.path.name]


def test_a_cell_without_a_folder_waits(grid, tmp_path):
    found = statuses(grid, tmp_path)
    assert list(found) == [cell.name for cell in grid.cells]
    for each in found.values():
        assert (each.state, each.rounds, each.of) == (State.WAITING, 0, 3)


def test_a_cell_with_some_rounds_is_unfinished(grid, tmp_path):
    begin(grid.cells[0], tmp_path, rounds=2)
    found = statuses(grid, tmp_path)[grid.cells[0].name]
    assert (found.state, found.rounds, found.of) == (State.UNFINISHED, 2, 3)
    assert found.seconds > 0


def test_a_finished_cell_is_known_by_its_summary(grid, folder):
    assert status(grid, folder).state is State.FINISHED
    text = folder.file("summary.json").read_text()
    for damage in (text[:100], "", "3", "{}"):
        folder.file("summary.json").write_text(damage)
        assert status(grid, folder).state is State.UNFINISHED


def test_a_noted_failure_counts_until_the_cell_is_finished(grid, folder):
    note_failure(folder.path, "killed")
    assert status(grid, folder).state is State.FINISHED
    folder.file("summary.json").unlink()
    found = status(grid, folder)
    assert (found.state, found.message, found.rounds) == (State.FAILED, "killed", 3)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("recipe.json", "{", "recipe.json cannot be read"),
        ("recipe.json", '{"data": 3}', "data = 3 is refused"),
        ("recipe.json", "3", "recipe"),
        ("rounds.jsonl", "]\n", "rounds.jsonl is damaged"),
        ("rounds.jsonl", "3\n", "is damaged"),
        ("rounds.jsonl", '{"round": 1}\n', "is damaged"),
    ],
)
def test_a_damaged_folder_is_a_failure_with_its_place(grid, folder, file, text, message):
    folder.file(file).write_text(text)
    found = status(grid, folder)
    assert found.state is State.FAILED
    assert message in found.message
    assert str(folder.path) in found.message


def test_a_run_of_another_recipe_in_a_cells_place_is_a_failure_with_the_difference(grid, folder):
    folder.path.rename(folder.path.with_name(grid.cells[2].name))
    found = statuses(grid, folder.path.parent)[grid.cells[2].name]
    assert found.state is State.FAILED
    assert "local.lr: 0.05 before, 0.1 now" in found.message


def test_two_at_once_on_one_folder_are_refused(grid, tmp_path):
    with FileLock(tmp_path / LOCK), pytest.raises(RunError, match="in use by another process"):
        next(run_grid(grid, tmp_path))


def test_a_folder_that_cannot_be_made_is_refused(grid, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be written"):
        next(run_grid(grid, tmp_path / "file"))


@pytest.fixture(scope="module")
def eventful(tmp_path_factory):
    """A run over cells that are finished, begun, damaged, foreign, in the way, or will diverge."""
    base = tmp_path_factory.mktemp("eventful")
    wild = write_grid(base, change=lambda text: text.replace("= 0.1 }", "= 1e30 }"))
    cells = read_grid(wild, seeds=[0, 1, 2]).cells
    names = ("finished", "begun", "damaged", "foreign", "blocked", "failed", "diverging")
    steady = [cell for cell in cells if cell.recipe.local.lr < 1]
    named = dict(zip(names, [*steady, cells[3]], strict=True))
    out = base / "out"
    for name, rounds in (("finished", None), ("begun", 1), ("damaged", 1)):
        begin(named[name], out, rounds)
    (out / named["damaged"].name / "recipe.json").write_text("{")
    (out / named["foreign"].name).mkdir()
    (out / named["foreign"].name / "holiday.jpg").touch()
    (out / named["blocked"].name).write_text("mine")
    note_failure(out / named["failed"].name, "killed")
    chosen = select(read_grid(wild, seeds=[0, 1, 2]), [cell.name for cell in named.values()])
    before = (out / named["finished"].name / "rounds.jsonl").stat().st_mtime_ns
    seconds = {cell.name: float(place) for place, cell in enumerate(named.values())}
    news = list(run_grid(chosen, out, 1, seconds=seconds))
    assert (out / named["finished"].name / "rounds.jsonl").stat().st_mtime_ns == before
    return named, out, news, statuses(chosen, out)


def test_what_can_be_finished_is_and_each_of_the_others_says_why_not(eventful):
    named, out, _, found = eventful
    told = {name: found[cell.name] for name, cell in named.items()}
    for name in ("finished", "begun", "failed"):
        assert told[name].state is State.FINISHED
        assert read_failure(out / named[name].name) is None
    reasons = {
        "damaged": "recipe.json cannot be read",
        "foreign": "such as holiday.jpg",
        "blocked": "is a file; a run needs a folder",
        "diverging": "method FedAvg",
    }
    for name, reason in reasons.items():
        assert told[name].state is State.FAILED
        assert reason in told[name].message


def test_the_longest_begin_first_and_what_is_finished_not_at_all(eventful):
    named, _, news, _ = eventful
    begun = [cell.name for cell, item in news if item.kind is EventKind.BEGUN]
    assert begun == [cell.name for cell in named.values()][:0:-1]


def test_a_cell_that_was_begun_goes_on_where_it_was(eventful):
    named, _, news, _ = eventful
    mine = [item.round for cell, item in news if cell == named["begun"] and item.round]
    assert mine == [2, 3]


def test_a_noted_failure_is_read_back_until_it_is_forgotten(tmp_path):
    path = tmp_path / "run.1"
    assert read_failure(path) is None
    note_failure(path, 'loss is "nan"\nin round 3 ∞')
    assert read_failure(path) == 'loss is "nan"\nin round 3 ∞'
    forget_failure(path)
    forget_failure(path)
    assert read_failure(path) is None


def test_the_note_does_not_make_the_folder_foreign(tmp_path):
    (tmp_path / "run").mkdir()
    note_failure(tmp_path / "run", "killed")
    check_foreign(tmp_path / "run")


def test_a_damaged_note_still_tells_of_a_failure(tmp_path):
    (tmp_path / "run.failed.json").write_text("{")
    assert "cannot be read" in read_failure(tmp_path / "run")
    (tmp_path / "run.failed.json").write_text("[]")
    assert "without a message" in read_failure(tmp_path / "run")


def test_a_note_that_cannot_be_written_tells_both_reasons(tmp_path):
    with pytest.raises(RunError, match=r"run failed \(killed\), and .*No such file"):
        note_failure(tmp_path / "nowhere" / "run", "killed")
