"""The grids of the study: what they hold, that they run, and how their results are stored."""

import contextlib
import csv
import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedbb.recipes.grid import read_grid
from fedbb.runs.runner import run
from fedbb.runs.sweep import note_failure, run_grid
from helpers.cover import few
from helpers.small_grid import write_grid
from studies import collect as collect_script

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "studies"
PATHS = sorted(FOLDER.glob("*.toml"))
README = (FOLDER / "README.md").read_text("utf-8")
CELLS = {
    "ablations": 40,
    "all-methods": 147,
    "ceiling": 6,
    "central-losses": 30,
    "chest-blocks": 45,
    "chest-candidates": 20,
    "chest-features": 80,
    "chest-schedules": 63,
    "chest-xrays": 120,
    "cifar-candidates": 40,
    "cifar-features": 150,
    "fashion": 80,
    "feddf": 6,
    "harmonized": 16,
    "head-candidates": 20,
    "hundred-clients": 15,
    "imbalance-factors": 60,
    "many-classes": 30,
    "natural-images": 180,
    "niid-bench": 54,
    "own-rates-chest": 24,
    "own-rates-resnet11": 14,
    "paper-schedule": 48,
    "paper-schedule-resnet11": 20,
    "paper-schedule-tenth": 20,
    "plus-candidates": 72,
    "plus-candidates-chest": 32,
    "rates-chest": 30,
    "rates-chest-blocks": 138,
    "rates-chest-features": 140,
    "rates-cifar-features": 40,
    "rates-resnet11": 16,
    "rates-small-cnn": 32,
}
CHOOSING = (
    "chest-candidates",
    "cifar-candidates",
    "head-candidates",
    "plus-candidates",
    "plus-candidates-chest",
    "rates-chest",
    "rates-chest-blocks",
    "rates-chest-features",
    "rates-cifar-features",
    "rates-resnet11",
    "rates-small-cnn",
)
NOTHING_CHOSEN = (
    "feddf",
    "niid-bench",
    "paper-schedule",
    "paper-schedule-resnet11",
    "paper-schedule-tenth",
)
"""Grids without validation data: their settings are given, such as those of a published table."""

each_grid = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def test_every_grid_is_counted_here():
    assert {path.stem for path in PATHS} == set(CELLS)


@each_grid
def test_a_grid_has_as_many_cells_as_it_should(path):
    assert len(read_grid(path).cells) == CELLS[path.stem]


@each_grid
def test_the_readme_tells_the_cells_of_a_grid(path):
    (row,) = re.findall(rf"^\|[^|]+\| `{path.stem}` \|.*$", README, re.M)
    assert f" {CELLS[path.stem]} " in row


@each_grid
def test_validation_data_is_held_out_unless_nothing_is_chosen(path):
    grid = read_grid(path)
    held_out = {cell.recipe.data.validation > 0 for cell in grid.cells}
    assert held_out == {path.stem not in NOTHING_CHOSEN}
    assert path.stem not in NOTHING_CHOSEN or grid.chosen == "final"


def test_what_is_chosen_is_not_shown_on_the_same_seeds():
    seeds = {path.stem: {cell.seed for cell in read_grid(path).cells} for path in PATHS}
    chosen = set.union(*(seeds[name] for name in CHOOSING))
    shown = set.union(*(seeds[name] for name in seeds if name not in CHOOSING))
    assert not chosen & shown


@each_grid
def test_no_patient_is_both_trained_on_and_chosen_by(path):
    films = [cell for cell in read_grid(path).cells if cell.recipe.data.name == "nih-cxr14"]
    assert all(cell.recipe.data.validation_by == "patient" for cell in films)


@pytest.mark.parametrize("path", few(PATHS, 7), ids=lambda path: path.stem)
def test_the_last_cell_of_a_grid_runs_at_a_tiny_scale(path, tmp_path):
    (record,) = run(tiny(read_grid(path).cells[-1].recipe), tmp_path / "run")
    scored = {"test"} if path.stem in NOTHING_CHOSEN else {"test", "validation"}
    assert set(record["scores"]) == scored


def tiny(recipe):
    """Return the recipe with a round on embedded data in place of its own."""
    small = {"path": None, "validation_by": None, "train_images": None}
    if recipe.data.name == "nih-cxr14" or "label_columns" in recipe.data.options:
        clients = recipe.data.partition.clients or 1
        small |= {"name": "digit-mosaic", "options": {"train": max(120, 15 * clients), "test": 30}}
    else:
        small |= {"name": "digits", "options": {}}
    if recipe.engine != "central":
        small["partition"] = replace(recipe.data.partition, min_samples=1)
    values = {
        # LeNet takes no images as small as the digits.
        "model": recipe.model.model_copy(update={"name": "small-cnn"})
        if recipe.model.name == "lenet"
        else recipe.model,
        "engine": "central" if recipe.engine == "central" else "inline",
        "data": recipe.data.model_copy(update=small),
        "local": replace(recipe.local, epochs=1),
        "rounds": replace(recipe.rounds, number=1),
    }
    return recipe.model_copy(update=values)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small grid whose cells have all been run."""
    folder = tmp_path_factory.mktemp("grid")
    path = write_grid(folder)
    write_noise(folder / "small.npz")
    for _ in run_grid(read_grid(path), folder / "runs", workers=1):
        pass
    return path, folder / "runs"


def write_noise(path):
    """Write images that tell nothing of their labels, so that no class is ranked without fault."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (80, 8, 8), dtype=np.uint8)
    split = np.where(np.arange(80) < 50, "train", "test")
    np.savez(path, images=images, labels=rng.integers(0, 3, 80), split=split)


def collect(*words):
    """Call the script with these words, and return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        collect_script.main([str(word) for word in words])
    return out.getvalue()


def rows(path):
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_a_kept_cell_has_its_labels_scores_classes_and_curve(finished, tmp_path):
    grid, runs = finished
    collect(grid, runs, "--results", tmp_path, "--note", "beside other work")
    out = tmp_path / "small"
    cells = rows(out / "cells.csv")
    assert [row["cell"] for row in cells] == [cell.name for cell in read_grid(grid).cells]
    first = cells[0]
    summary = json.loads((runs / first["cell"] / "summary.json").read_text("utf-8"))
    assert (first["method"], first["rate"], first["seed"]) == ("FedAvg", "η = 0.05", "0")
    accuracy = summary["final"]["scores"]["test"]["macro"]["accuracy"]
    assert float(first["test accuracy"]) == pytest.approx(accuracy, abs=1e-5)
    assert len(rows(out / "classes.csv")) == 3 * len(cells)
    assert len(rows(out / "curves.csv")) == 3 * len(cells)
    about = json.loads((out / "about.json").read_text("utf-8"))
    assert (about["finished"], about["cells"]) == (8, 8)
    assert about["note"] == "beside other work"
    assert len(about["made with"]) == 1


def test_what_is_kept_outlives_its_run_folder(finished, tmp_path):
    grid, runs = finished
    names = [cell.name for cell in read_grid(grid).cells]
    for part in (names[:5], names[5:]):
        some = tmp_path / "some"
        shutil.rmtree(some, ignore_errors=True)
        for name in part:
            shutil.copytree(runs / name, some / name)
        collect(grid, some, "--results", tmp_path / "parts")
    collect(grid, runs, "--results", tmp_path / "whole")
    for name in ("cells.csv", "classes.csv", "curves.csv", "about.json"):
        whole = (tmp_path / "whole/small" / name).read_bytes()
        assert (tmp_path / "parts/small" / name).read_bytes() == whole


def test_what_is_missing_is_told_as_words_for_a_sweep(finished, tmp_path):
    grid, runs = finished
    names = [cell.name for cell in read_grid(grid).cells]
    shutil.copytree(runs / names[2], tmp_path / "some" / names[2])
    said = collect(grid, tmp_path / "some", "--results", tmp_path, "--missing")
    assert said.split() == [w for name in names if name != names[2] for w in ("--only", name)]
    collect(grid, runs, "--results", tmp_path)
    assert collect(grid, "--results", tmp_path, "--missing").strip() == ""


def test_a_cell_of_other_settings_is_not_kept(finished, tmp_path):
    grid, runs = finished
    collect(grid, runs, "--results", tmp_path)
    changed = grid.with_name("other") / grid.name
    changed.parent.mkdir(exist_ok=True)
    changed.write_text(grid.read_text("utf-8").replace('lr" = 0.1 ', 'lr" = 0.2 '), "utf-8")
    empty = tmp_path / "empty"
    empty.mkdir()
    collect(changed, empty, "--results", tmp_path)
    assert {row["rate"] for row in rows(tmp_path / "small/cells.csv")} == {"η = 0.05"}


def test_a_cell_that_diverges_is_kept_as_such_and_one_that_fails_otherwise_is_not(tmp_path):
    path = write_grid(tmp_path, change=lambda text: text.replace('lr" = 0.1 ', 'lr" = 1e30 '))
    runs = tmp_path / "runs"
    for _ in run_grid(read_grid(path, seeds=[0]), runs, workers=1):
        pass
    other = read_grid(path, seeds=[1]).cells[0].name
    note_failure(runs / other, "No space left on device")
    collect(path, runs, "--results", tmp_path)
    lost = rows(tmp_path / "small/diverged.csv")
    assert [(row["method"], row["rate"]) for row in lost] == [
        ("FedAvg", "η = 0.1"),
        ("FedBB", "η = 0.1"),
    ]
    left = collect(path, "--results", tmp_path, "--missing").split()
    assert other in left
    assert not any("seed0" in word for word in left)
