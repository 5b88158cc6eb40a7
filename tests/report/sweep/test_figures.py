"""A grid's figures come from its finished runs, one set for what differs only by method."""

import json

import pytest
from PIL import Image

from fedbb.errors import RunError
from fedbb.recipes.grid import read_grid
from fedbb.report.sweep.figures import draw_figures, merged, panels_of
from fedbb.report.sweep.score_table import read_cells
from helpers.grid_results import run_cells, small_grid, write_grid

KINDS = ["curves", "costs", "gains", "shares", "weights", "partition"]
EVIL = '<script>alert("x")</script> | _ % & \\ ../..'


def panels(grid, runs):
    return panels_of(grid, read_cells(grid, runs))


def test_every_kind_is_drawn_for_every_comparison_as_png_and_svg(tmp_path):
    grid = small_grid(tmp_path, seeds="[0]", columns=(EVIL,))
    paths = draw_figures(grid, run_cells(grid, tmp_path / "runs"), tmp_path / "out")
    assert sorted(paths) == sorted((tmp_path / "out").iterdir())
    stem = "1-script-alert-x-script"
    names = [f"{stem}-{kind}.{end}" for kind in KINDS for end in ("png", "svg")]
    assert [path.name for path in paths] == names
    for path in paths:
        if path.suffix == ".png":
            with Image.open(path) as image:
                image.verify()
        else:
            assert "<script" not in path.read_text("utf-8")


def test_panels_are_titled_by_what_is_shared_and_name_what_differs(tmp_path):
    grid = small_grid(tmp_path, seeds="[0, 1]")
    found = panels(grid, run_cells(grid, tmp_path / "runs"))
    assert [panel.title for panel in found] == ["δ = 0.1", "δ = 0.2"]
    for panel in found:
        assert [part.label for part in panel.methods] == ["FedAvg", "Control", "FedBB"]
        assert {part.seeds for part in panel.methods} == {(0, 1)}


def test_methods_may_stand_in_the_columns(tmp_path):
    path = write_grid(tmp_path / "g.toml", {"A": "fedavg", "B": "fedbb"}, ["x", "y"], seeds="[0]")
    text = path.read_text().replace('rows = "method"', 'rows = "skew"')
    path.write_text(text.replace('columns = ["skew"]', 'columns = ["method"]'))
    grid = read_grid(path)
    found = panels(grid, run_cells(grid, tmp_path / "runs"))
    assert [panel.title for panel in found] == ["x", "y"]
    assert [[part.label for part in panel.methods] for panel in found] == [["A", "B"]] * 2


def test_a_grid_over_data_alone_has_its_curves_in_one_figure(tmp_path):
    grid = small_grid(tmp_path, rows={"FedAvg": "fedavg"}, columns=("x", "y"), seeds="[0]")
    runs = run_cells(grid, tmp_path / "runs")
    together = merged(grid, panels(grid, runs))
    assert [part.label for part in together.methods] == ["FedAvg, x", "FedAvg, y"]
    names = [path.name for path in draw_figures(grid, runs, tmp_path / "out")]
    assert [name for name in names if name.startswith("all-")] == [
        f"all-a-table-{kind}.{end}" for kind in ("curves", "costs") for end in ("png", "svg")
    ]
    assert sum("curves" in name for name in names) == 2


def test_corrupt_and_missing_runs_leave_the_others_drawn(tmp_path):
    grid = small_grid(tmp_path, columns=("x",), seeds="[0, 1]")
    runs = run_cells(grid, tmp_path / "runs", lambda cell: cell.at["method"] != "Control")
    (runs / grid.cells[0].name / "federation.json").write_text("{")
    (panel,) = panels(grid, runs)
    assert [(part.label, part.seeds) for part in panel.methods] == [
        ("FedAvg", (1,)),
        ("FedBB", (0, 1)),
    ]


def test_data_that_changed_behind_a_recipe_is_not_drawn_with_the_rest(tmp_path):
    grid = small_grid(tmp_path, columns=("x",), seeds="[0]")
    runs = run_cells(grid, tmp_path / "runs")
    path = runs / grid.cells[-1].name / "federation.json"
    federation = json.loads(path.read_text())
    path.write_text(json.dumps(federation | {"classes": [f"new {n}" for n in range(10)]}))
    (panel,) = panels(grid, runs)
    assert [part.label for part in panel.methods] == ["FedAvg", "Control"]


def test_nothing_finished_is_nothing_drawn(tmp_path):
    assert draw_figures(small_grid(tmp_path), tmp_path / "nowhere", tmp_path / "out") == []


def test_a_place_that_cannot_be_written_is_told(tmp_path):
    grid = small_grid(tmp_path, columns=("x",), seeds="[0]")
    (tmp_path / "out").write_text("a file")
    with pytest.raises(RunError, match=r"cannot be written to .*out"):
        draw_figures(grid, run_cells(grid, tmp_path / "runs"), tmp_path / "out")


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes(tmp_path):
    grid = small_grid(tmp_path, rows={"FedBB": "fedbb"}, columns=("x",), seeds="[0]")
    runs = run_cells(grid, tmp_path / "runs")
    first, second = (draw_figures(grid, runs, tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in first] == [path.name for path in second]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
