"""The page on sweeps: its files can be read, and say what the page says."""

import re
from pathlib import Path

from fedbb.recipes.grid import GridSpec, OverlaySpec, read_grid
from helpers.small_grid import write

PAGE = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text("utf-8")
BLOCKS = dict(re.findall(r"^```toml (\S+)\n(.*?)^```$", PAGE, re.M | re.S))


def test_the_grid_of_the_page_is_the_one_that_its_screen_shows(tmp_path):
    grid = read_grid(write(tmp_path / "grid.toml", BLOCKS["grid.toml"]))
    shown = re.findall(r"│ (Fed\w+) +│ (δ = [\d.]+) │", PAGE)
    assert list(dict.fromkeys(tuple(cell.at.values()) for cell in grid.cells)) == shown
    assert grid.title in PAGE.partition("--dry-run")[2]
    assert f"{len(grid.cells)} cells, 1 finished" in PAGE


def test_the_overlay_of_the_page_changes_what_it_says(tmp_path):
    paths = [write(tmp_path / name, BLOCKS[name]) for name in ("grid.toml", "quick.toml")]
    grid = read_grid(paths[0], paths[1:])
    assert grid.notes == ("three rounds only",)
    assert {(cell.seed, cell.recipe.rounds.number) for cell in grid.cells} == {(7, 3)}
    skews = {cell.recipe.data.partition.concentration for cell in grid.cells}
    assert skews == {0.2, 0.5}


def test_the_page_names_every_key_of_the_files():
    for key in {*GridSpec.model_fields, *OverlaySpec.model_fields} - {"source"}:
        assert re.search(rf"\b{key}\b", PAGE), key
