"""`fedbb paper` on a small table made here."""

import json

import pytest

from fedbb.paper import tables as paper_tables
from fedbb.paper.tables import paper_grid
from fedbb.runs.runner import run
from fedbb.runs.sweep import note_failure
from helpers.commands import fedbb
from helpers.small_grid import write, write_grid

NUMBER = """
[[number]]
at = { method = "FedBB", rate = "η = 0.1" }
metric = "accuracy"
mean = 71.23
spread = 0.45
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    top = tmp_path / "tables"
    for inner in ("scales/smoke", "scales/reduced", "numbers"):
        (top / inner).mkdir(parents=True)
    write_grid(top, "rates.toml")
    for scale, rounds in (("smoke", 1), ("reduced", 2)):
        write(top / f"scales/{scale}/all.toml", f"seeds = [0]\nrecipe.rounds.number = {rounds}")
    write(top / "numbers/rates.toml", NUMBER)
    monkeypatch.setattr(paper_tables, "_folder", lambda: top)
    return tmp_path


def test_the_list_tells_captions_and_cells_at_every_scale(folder, monkeypatch):
    (row,) = json.loads(fedbb("paper", "list", "--json", monkeypatch=monkeypatch).out)
    assert row["table"] == "rates"
    assert row["source"] == "Table 9"
    assert row["cells"] == {"full": 8, "reduced": 4, "smoke": 4}
    shown = fedbb("paper", "list", monkeypatch=monkeypatch).out
    assert "Two methods at two rates." in shown


def test_a_table_runs_by_its_name_and_shows_the_papers_number_beside_ours(folder, monkeypatch):
    words = ("paper", "rates", "--scale", "smoke", "--only", "FedBB & η = 0.1")
    done = fedbb(*words, monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    assert "table: paper/rates/smoke/table.md" in done.out
    table = (folder / "paper/rates/smoke/table.md").read_text("utf-8")
    assert "71.23" in table
    same = fedbb("paper", "run", *words[1:], "--dry-run", monkeypatch=monkeypatch)
    assert "1 cell, 1 finished" in same.out
    shown = fedbb("paper", "table", "rates", "--scale", "smoke", monkeypatch=monkeypatch)
    assert shown.code == 0, shown.err
    assert "71.23" in shown.out
    drawn = fedbb("paper", "plot", "rates", "--scale", "smoke", "--json", monkeypatch=monkeypatch)
    assert drawn.code == 0, drawn.err
    assert all((folder / path).exists() for path in json.loads(drawn.out))


def test_the_status_tells_how_far_each_cell_is(folder, monkeypatch):
    cells = paper_grid("rates", "reduced").cells
    runs = folder / "paper/rates/reduced/runs"
    for cell, rounds in zip(cells, (2, 1), strict=False):
        records = run(cell.recipe.model_copy(update={"engine": "inline"}), runs / cell.name)
        while next(records, {"round": rounds})["round"] < rounds:
            pass
        list(records) if rounds == 2 else records.close()
    note_failure(runs / cells[2].name, "its process was ended by SIGKILL")
    done = fedbb("paper", "status", "rates", monkeypatch=monkeypatch)
    assert "4 cells, 1 finished, 1 unfinished, 1 failed" in done.out
    assert "1 of 2" in done.out
    assert "failed FedBB · η = 0.05 · seed 0: its process was ended by SIGKILL" in done.out
    plain = json.loads(fedbb("paper", "status", "rates", "--json", monkeypatch=monkeypatch).out)
    assert [cell["state"] for cell in plain] == ["finished", "unfinished", "failed", "waiting"]
    every = json.loads(fedbb("paper", "status", "--json", monkeypatch=monkeypatch).out)
    assert every == {"rates": {"waiting": 1, "unfinished": 1, "finished": 1, "failed": 1}}
    assert "rates" in fedbb("paper", "status", monkeypatch=monkeypatch).out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rats"], "table 'rats' is unknown; did you mean rates?"),
        (["mine.toml"], "a recipe of your own is for `fedbb run`, a grid for `fedbb sweep`"),
        (["rates", "--scale", "tiny"], "scale 'tiny' is unknown"),
        (["rates", "--only", "MOON"], "no cell matches 'MOON'"),
        (["table", "rats"], "table 'rats' is unknown"),
        (["status", "rats"], "table 'rats' is unknown"),
    ],
)
def test_bad_input_ends_with_one_message_and_exit_code_two(folder, monkeypatch, words, message):
    done = fedbb("paper", *words, monkeypatch=monkeypatch)
    assert done.code == 2
    assert message in done.err


def test_a_table_without_cells_says_so(folder, monkeypatch):
    write_grid(folder / "tables", "cost.toml", lambda text: text.replace("[0, 1]", "[]"))
    done = fedbb("paper", "cost", monkeypatch=monkeypatch)
    assert done.code == 2
    assert "has no cells to run" in done.err


def test_figures_without_a_finished_run_are_refused_and_name_the_scale(folder, monkeypatch):
    done = fedbb("paper", "plot", "rates", monkeypatch=monkeypatch)
    assert done.code == 2
    assert "holds no finished run" in done.err
    assert "fedbb paper rates --scale reduced" in " ".join(done.err.split())
    assert not (folder / "paper").exists()
