"""The grids of the paper's tables, at each scale."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from fedbb.data.registry import find_entry
from fedbb.paper.tables import SCALES, paper_grid, paper_tables, printed
from fedbb.recipes.check import check_recipe
from fedbb.records import Task
from fedbb.runs.runner import run
from helpers.cover import few

DOCS = Path(__file__).parents[2] / "docs" / "paper-tables.md"
TRAINED = [table for table in paper_tables() if table != "efficiency"]
IMAGES = {
    "cifar10": (50_000, 10_000, 10),
    "cifar100": (50_000, 10_000, 100),
    "tiny-imagenet": (100_000, 10_000, 200),
    "chexpert": (178_731, 44_683, 10),
    "digits": (1_438, 359, 10),
    "digit-mosaic": (3_000, 1_000, 10),
}
"""Training images, test images and classes; NIH's are in its options."""
TINY_HERE = (50_000, 5_000, 100)
SPEEDS = {"small-cnn": 2600, "resnet11": 350, "resnet56": 75, "efficientnet-b0": 400}
"""Images trained a second on one core, at 32 × 32 pixels."""
SIDES = {"cifar10": 32, "cifar100": 32, "digits": 8, "digit-mosaic": 16, "tiny-imagenet": 64}

grid_of = cache(paper_grid)


@pytest.mark.parametrize("table", paper_tables())
@pytest.mark.parametrize("scale", SCALES)
def test_every_cell_of_every_scale_is_a_sound_recipe(table, scale):
    grid = grid_of(table, scale)
    for cell in grid.cells:
        check_recipe(cell.recipe)
    assert bool(grid.cells) == (table in TRAINED)
    assert grid.caption
    assert re.fullmatch(r"Table \d+", grid.source)


def test_every_table_of_the_paper_is_there_once():
    numbers = [int(grid_of(table, "full").source.split()[1]) for table in paper_tables()]
    assert sorted(numbers) == list(range(1, 14))


@pytest.mark.parametrize("table", paper_tables())
def test_every_printed_score_has_a_cell_or_a_reason_why_not(table):
    grid = grid_of(table, "full")
    known = {frozenset(cell.at.items()) for cell in grid.cells} | set(grid.skipped)
    for number in printed(table):
        if number.metric in grid.metrics and table in TRAINED:
            assert frozenset(number.at.items()) in known, number


@pytest.mark.parametrize("table", TRAINED)
def test_scales_keep_places_and_say_what_they_change(table):
    full, reduced, smoke = (grid_of(table, scale) for scale in SCALES)
    places = [[(cell.at, cell.seed) for cell in grid.cells] for grid in (full, reduced, smoke)]
    assert places[0] == places[1]
    assert [place for place in places[0] if place[1] == 0] == places[2]
    assert {cell.seed for cell in full.cells} == {0, 1996}
    assert full.notes == ()
    assert len(reduced.notes) == 2
    assert len(smoke.notes) == 1


@pytest.mark.parametrize("table", TRAINED)
def test_full_is_the_setting_that_the_paper_states(table):
    for cell in grid_of(table, "full").cells:
        recipe = cell.recipe
        central = recipe.engine == "central"
        assert (recipe.local.lr, recipe.local.momentum) == (0.01, 0.9)
        assert recipe.local.batch_size == (64 if central else 32)
        chest = recipe.data.name in ("nih-cxr14", "chexpert")
        assert recipe.evaluation.metric == ("auroc" if chest else "accuracy")
        assert recipe.model.name == ("efficientnet-b0" if central and chest else "resnet56")
        if not central:
            assert recipe.data.partition.kind == ("quantity-skew" if chest else "label-skew")
            assert recipe.data.partition.concentration == _skew(table, cell.at)


def _skew(table, at):
    """Return δ by the labels of a cell, or by what the paper says of the table."""
    if table == "hundred-clients":
        return 1.0 if at["data"] in ("NIH CXR14", "CheXpert") else 0.5
    if table in ("harmonized", "ablation-alpha-beta"):
        return 0.5
    return float(re.search(r"δ = ([\d.]+)", " ".join(at.values()))[1])


OPTIONS = {
    ("cifar10-label-skew", "δ = 0.05"): (0.6, 1, 5),
    ("cifar10-label-skew", "δ = 0.1"): (0.9999, 1, 4),
    ("cifar10-label-skew", "δ = 0.5"): (0.9999, 1, 4),
    ("cifar100-tiny-imagenet", "CIFAR-100"): (0.99, 1, 5),
    ("cifar100-tiny-imagenet", "Tiny-ImageNet"): (0.9999, 1, 4),
    ("long-tail", "LT-CIFAR-10, δ = 0.1"): (0.9999, 1, 4),
    ("long-tail", "LT-CIFAR-10, δ = 0.5"): (0.9999, 1, 4),
    ("long-tail", "LT-CIFAR-100, δ = 0.1"): (0.999, 1, 5),
    ("long-tail", "LT-CIFAR-100, δ = 0.5"): (0.999, 10, 5),
    ("chest-50-rounds", "NIH CXR14"): (0.9999999, 10, 4),
    ("chest-50-rounds", "CheXpert"): (0.9999999, 10, 4),
    ("chest-30-rounds", "NIH CXR14"): (0.9999, 1, 4),
    ("chest-30-rounds", "CheXpert"): (0.9999, 1, 4),
    ("hundred-clients", "NIH CXR14"): (0.9999999, 10, 5),
    ("hundred-clients", "CheXpert"): (0.9999999, 10, 5),
    ("hundred-clients", "CIFAR-10"): (0.9999, 1, 5),
    ("hundred-clients", "CIFAR-100"): (0.99, 1, 5),
}
"""β, τ and μ of FedBB, from docs/paper-notes.md, 32."""


@pytest.mark.parametrize(("table", "label"), OPTIONS)
def test_fedbb_and_its_control_have_the_options_of_the_paper(table, label):
    found = {
        tuple(cell.recipe.method.options[key] for key in ("beta", "tau", "mu"))
        for cell in grid_of(table, "full").cells
        if label in cell.at.values() and cell.recipe.method.name in ("fedbb", "fedavg-scaled")
    }
    assert found == {OPTIONS[table, label]}


@pytest.mark.parametrize("table", ["central-ceiling", "central-losses"])
@pytest.mark.parametrize("scale", SCALES)
def test_central_tables_run_pnb_with_the_default_mu_and_with_a_mean_weight_of_one(table, scale):
    found = {
        (cell.at[grid_of(table, scale).rows], cell.recipe.method.options["mu"])
        for cell in grid_of(table, scale).cells
        if cell.recipe.method.name == "pnb"
    }
    assert found == {("PNB", 4.0), ("PNB, unit mean weight", "unit")}


def test_the_table_of_parts_has_the_settings_of_the_main_tables():
    """PNB and FedBB alone train as FedBB in Tables 2, 5, 6 and 7."""
    main = {}
    for table in ("chest-50-rounds", "cifar10-label-skew", "cifar100-tiny-imagenet", "long-tail"):
        for cell in grid_of(table, "full").cells:
            if cell.recipe.method.name == "fedbb":
                main[_content(cell)] = table
    alone = [c for c in grid_of("pnb-cbr-alone", "full").cells if c.recipe.method.name == "fedbb"]
    assert len(alone) == 24
    assert all(_content(cell) in main for cell in alone)


def _content(cell):
    return cell.recipe.model_dump_json(exclude={"name"})


@pytest.mark.parametrize("table", TRAINED)
def test_rounds_and_epochs_are_those_of_the_paper(table):
    for cell in grid_of(table, "full").cells:
        recipe = cell.recipe
        found = (recipe.data.partition.clients, recipe.local.epochs, recipe.rounds.number)
        chest = recipe.data.name in ("nih-cxr14", "chexpert")
        if recipe.engine == "central":
            assert found == (None, 1, 20 if chest else 30)
        elif table == "hundred-clients":
            lengths = {"cifar10": (100, 10, 50), "cifar100": (100, 20, 30)}
            assert found == lengths.get(recipe.data.name, (100, 2, 50))
            assert recipe.rounds.participation == 0.05
        elif table == "chest-30-rounds":
            assert found == (5, int(cell.at["epochs"].split()[-1]), 30)
        else:
            assert found == {True: (5, 2, 50), False: (16, 20, 30)}[chest] or (
                recipe.data.name == "cifar10" and found == (10, 10, 20)
            )


def test_smoke_needs_no_data_but_what_is_embedded():
    names = {cell.recipe.data.name for table in TRAINED for cell in grid_of(table, "smoke").cells}
    assert {find_entry(name).origin for name in names} == {"embedded"}


@pytest.mark.parametrize("table", TRAINED)
@pytest.mark.parametrize("scale", ["reduced", "smoke"])
def test_scales_are_laid_over_and_no_copies(table, scale):
    folder = Path(__file__).parents[2] / "src" / "fedbb" / "paper" / "data"
    grid, overlay = (folder / part for part in (f"{table}.toml", f"scales/{scale}/{table}.toml"))
    assert len(overlay.read_text("utf-8").split()) < len(grid.read_text("utf-8").split())


def _sizes(recipe, scale):
    """Return how many images a run trains on in an epoch, and how many it is tested on."""
    options = recipe.data.options
    known = (86_336, 22_366, 14) if recipe.data.name == "nih-cxr14" else IMAGES[recipe.data.name]
    if scale == "reduced" and recipe.data.name == "tiny-imagenet":
        known = TINY_HERE
    train, test, classes = known
    train = options.get("n_train", options.get("train", train))
    if recipe.data.long_tail is not None:
        shares = [recipe.data.long_tail ** (place / (classes - 1)) for place in range(classes)]
        train = sum(int(train // classes * share) for share in shares)
    return train * recipe.rounds.participation, options.get("n_test", options.get("test", test))


def _work(table, scale):
    """Return the training images of a table, and its hours on two cores."""
    images = seconds = 0.0
    for cell in grid_of(table, scale).cells:
        recipe = cell.recipe
        train, test = _sizes(recipe, scale)
        trained = train * recipe.local.epochs * recipe.rounds.number
        side = recipe.data.options.get("size", SIDES.get(recipe.data.name))
        speed = SPEEDS[recipe.model.name] * (32 / side) ** 2
        slower = {"moon": 1.7, "fedalign": 1.15}.get(recipe.method.name.partition("+")[0], 1)
        images += trained
        seconds += slower * trained / speed + test * recipe.rounds.number / (3 * speed)
    return images, seconds / 3600 / 2


@pytest.mark.parametrize("table", TRAINED)
def test_reduced_takes_about_three_hours_at_most(table):
    assert _work(table, "reduced")[1] < 3.25


@pytest.mark.parametrize("table", TRAINED)
def test_the_page_tells_what_each_scale_costs(table):
    full, reduced = _work(table, "full"), _work(table, "reduced")
    cells = [len(grid_of(table, scale).cells) for scale in SCALES]
    row = (
        f"| `{table}` | {cells[0]} | {full[0] / 1e6:,.1f} | {full[1]:,.0f} "
        f"| {reduced[0] / 1e6:,.1f} | {reduced[1]:.1f} | {cells[2]} |"
    )
    assert row in DOCS.read_text(encoding="utf-8").splitlines()


def _kinds(task, central):
    """Return a smoke cell for each method that some table runs on this kind of labels."""
    found = {}
    for table in TRAINED:
        for cell in grid_of(table, "smoke").cells:
            recipe = cell.recipe
            if find_entry(recipe.data.name).task is task and central == (
                recipe.engine == "central"
            ):
                found.setdefault(recipe.method.name, cell)
    return found


@pytest.mark.parametrize(
    ("task", "central", "methods"),
    few(
        [
            (Task.MULTICLASS, False, 18),
            (Task.MULTILABEL, False, 9),
            (Task.MULTICLASS, True, 5),
            (Task.MULTILABEL, True, 4),
        ],
        1,
    ),
)
def test_every_method_runs_on_every_kind_of_labels(task, central, methods, tmp_path):
    cells = _kinds(task, central)
    assert len(cells) == methods
    for cell in cells.values():
        rounds = replace(cell.recipe.rounds, number=1)
        records = _run(cell.recipe.model_copy(update={"rounds": rounds}), tmp_path / cell.name)
        assert len(records) == 1, cell.title


@pytest.mark.slow
@pytest.mark.parametrize("table", TRAINED)
def test_every_smoke_cell_runs(table, tmp_path):
    for cell in grid_of(table, "smoke").cells:
        records = _run(cell.recipe, tmp_path / cell.name)
        assert len(records) == 2, cell.title


def _run(recipe, path):
    engine = "central" if recipe.engine == "central" else "inline"
    return list(run(recipe.model_copy(update={"engine": engine}), path))
