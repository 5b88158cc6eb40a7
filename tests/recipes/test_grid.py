"""Grid files: what they expand to, what overlays change, and the message for each mistake."""

import copy
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import RecipeError
from fedbb.recipes.grid import cell_name, merge, plain, put, read_grid, select
from fedbb.recipes.spec import Recipe
from helpers.small_grid import write, write_grid

names = st.text("abc", min_size=1, max_size=2)
tables = st.dictionaries(
    names,
    st.recursive(st.integers(), lambda inner: st.dictionaries(names, inner, max_size=3)),
    max_size=4,
)


@given(tables)
def test_nothing_laid_over_or_under_changes_nothing(values):
    assert merge(values, {}) == values == merge({}, values)


@given(tables, tables, tables)
def test_laying_over_in_two_steps_or_at_once_is_the_same_where_tables_stay_tables(a, b, c):
    if all(kinds_agree(x, y) for x, y in ((a, b), (b, c), (a, c))):
        assert merge(merge(a, b), c) == merge(a, merge(b, c))


def kinds_agree(one, other):
    return all(
        isinstance(one[key], dict) == isinstance(other[key], dict)
        and (not isinstance(one[key], dict) or kinds_agree(one[key], other[key]))
        for key in one.keys() & other.keys()
    )


@given(tables, tables)
def test_neither_side_is_changed(under, over):
    before = copy.deepcopy((under, over))
    merged = merge(under, over)
    for value in merged.values():
        if isinstance(value, dict):
            value["new"] = 1
    assert (under, over) == before


def test_a_value_is_put_in_by_its_dotted_name_and_tables_are_made_on_the_way():
    assert put({"a": {"b": 1}}, {"a.c": 2, "d.e": 3}) == {"a": {"b": 1, "c": 2}, "d": {"e": 3}}


def test_a_table_that_is_put_in_replaces_the_one_before():
    assert put({"data": {"options": {"size": 8}}}, {"data.options": {}}) == {
        "data": {"options": {}}
    }


def test_a_value_is_no_table_to_put_into():
    with pytest.raises(RecipeError, match=r"a\.b\.c cannot be set: b is a value"):
        put({"a": {"b": 1}}, {"a.b.c": 2})


SAFE = re.compile(r"[a-z0-9.+_-]+")


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("FedAvg", "fedavg"),
        ("MOON+FedBB", "moon+fedbb"),
        ("δ = 0.1", "delta-0.1"),
        ("Café", "cafe"),
        ("../../etc", "etc"),
        ("<script>", "script"),
        ("β＝½", "beta-1-2"),
        ("漢字", ""),
    ],
)
def test_a_label_becomes_a_plain_word(label, expected):
    assert plain(label) == expected


@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1), max_size=3), st.integers(0, 9))
def test_any_labels_make_a_name_that_is_safe_as_a_folder_and_allowed_in_a_recipe(at, seed):
    name = cell_name(at, {"seed": seed})
    assert SAFE.fullmatch(name)
    assert name[0] not in ".-"
    values = {"name": name, "data": {"name": "digits"}, "method": {"name": "fedavg"}}
    assert Recipe.model_validate(values).name == name


def test_labels_that_look_alike_in_plain_letters_stay_apart():
    assert cell_name({"a": "漢"}, {"seed": 0}) != cell_name({"a": "字"}, {"seed": 0})


def test_other_settings_make_another_name_and_another_engine_does_not():
    at, values = {"method": "FedBB"}, {"seed": 0, "local": {"lr": 0.1}}
    name = cell_name(at, values)
    assert name.startswith("fedbb_seed0_")
    assert cell_name(at, {**values, "local": {"lr": 0.2}}) != name
    assert cell_name(at, {**values, "engine": "inline"}) == name
    assert cell_name(at, {**values, "engine": "central"}) != name


@pytest.fixture
def path(tmp_path):
    return write_grid(tmp_path)


def read(path, *overlays, **options):
    places = [
        write(path.with_name(f"overlay{number}.toml"), text) for number, text in enumerate(overlays)
    ]
    return read_grid(path, places, **options)


def refused(path, *overlays, **options):
    with pytest.raises(RecipeError) as caught:
        read(path, *overlays, **options)
    return str(caught.value)


def test_every_combination_has_a_cell_for_every_seed_in_the_order_of_the_file(path):
    grid = read(path)
    assert [cell.title for cell in grid.cells][:3] == [
        "FedAvg · η = 0.05 · seed 0",
        "FedAvg · η = 0.05 · seed 1",
        "FedAvg · η = 0.1 · seed 0",
    ]
    assert len(grid.cells) == len({cell.name for cell in grid.cells}) == 8
    for cell in grid.cells:
        assert cell.recipe.seed == cell.seed
        assert cell.recipe.name == cell.name
        assert cell.recipe.method.name == cell.at["method"].lower()
        assert cell.at["rate"] == f"η = {cell.recipe.local.lr}"
        assert cell.recipe.local.batch_size == 8


def test_the_grid_tells_what_its_file_says(path):
    grid = read(path)
    assert (grid.title, grid.source, grid.chosen) == ("Small", "Table 9", "best")
    assert (grid.rows, grid.columns, grid.metrics) == ("method", ("rate",), ("accuracy",))
    assert grid.axes == {"method": ("FedAvg", "FedBB"), "rate": ("η = 0.05", "η = 0.1")}
    assert (grid.notes, grid.skipped) == ((), {})


def test_reading_twice_gives_the_same(path):
    assert read(path) == read(path)


def test_an_overlay_changes_settings_of_all_cells_of_one_label_and_of_all_after_the_axes(path):
    small = """
    note = "fewer rounds"
    seeds = [7]
    set = { "model.name" = "small-cnn", "local.epochs" = 2 }
    [recipe]
    rounds = { number = 1 }
    local = { batch_size = 4, epochs = 9 }
    [[axis]]
    name = "rate"
    value = [{ label = "η = 0.1", set = { "local.lr" = 0.2 } }]
    """
    grid = read(path, small, 'note = "and larger batches"\nrecipe = { local.batch_size = 16 }')
    assert grid.notes == ("fewer rounds", "and larger batches")
    assert {cell.seed for cell in grid.cells} == {7}
    for cell in grid.cells:
        rate = 0.2 if cell.at["rate"] == "η = 0.1" else 0.05
        local = cell.recipe.local
        assert (cell.recipe.rounds.number, local.batch_size, local.epochs) == (1, 16, 2)
        assert local.lr == rate


def test_seeds_and_settings_of_the_caller_come_last(path):
    grid = read(path, "seeds = [7]", seeds=[3, 4], settings=["local.epochs=5"])
    assert sorted({cell.seed for cell in grid.cells}) == [3, 4]
    assert {cell.recipe.local.epochs for cell in grid.cells} == {5}


def test_combinations_that_are_skipped_have_a_reason_and_no_cells(path):
    grid = read(path, 'skip = [{ where = { method = "FedBB", rate = "η = 0.1" }, why = "slow" }]')
    assert grid.skipped == {frozenset({("method", "FedBB"), ("rate", "η = 0.1")}): "slow"}
    assert len(grid.cells) == 6


def test_skipping_a_label_skips_it_on_every_other_axis(path):
    grid = read(path, 'skip = [{ where = { method = "FedBB" }, why = "slow" }]')
    assert len(grid.skipped) == 2
    assert {cell.at["method"] for cell in grid.cells} == {"FedAvg"}


def test_a_grid_without_seeds_has_no_cells_whatever_is_laid_over_it(tmp_path):
    path = write_grid(
        tmp_path,
        change=lambda text: text.replace("[0, 1]", "[]").replace('["accuracy"]', '["parameters"]'),
    )
    grid = read(path, "seeds = [5]", seeds=[1])
    assert grid.cells == ()
    assert grid.axes["method"] == ("FedAvg", "FedBB")


def test_equal_cells_are_refused_unless_the_overlay_means_it(path):
    same = 'set = { "local.lr" = 0.3 }'
    message = refused(path, same)
    assert "cells FedAvg · η = 0.05 · seed 0 and FedAvg · η = 0.1 · seed 0 are the same" in message
    grid = read(path, f"{same}\nequal_cells = true")
    assert len({cell.name for cell in grid.cells}) == 8


MISTAKES = {
    'rows = "method"': [
        ('rows = "methd"', "axis 'methd' of rows or columns is unknown; did you mean method?"),
        ('rows = "rate"', "axis of rows and columns 'rate' is given more than once"),
        ("", "rows is missing"),
        ("rows = 3", "rows = 3 is refused"),
        ('rows = "method"\nrow = 1', "row is unknown; did you mean rows?"),
    ],
    'columns = ["rate"]': [("columns = []", "axis rate must be among rows or columns")],
    "seeds = [0, 1]": [
        ("seeds = [0, 0]", "seed '0' is given more than once"),
        ("seeds = [-1]", "seeds 1 = -1 is refused"),
    ],
    'metrics = ["accuracy"]': [
        ('metrics = ["acuracy"]', "metric 'acuracy' is unknown; did you mean accuracy?")
    ],
    'label = "FedBB"': [
        ('label = "FedAvg"', "label of axis method 'FedAvg' is given more than once"),
        ('lable = "FedBB"', "axis 1 value 2 lable is unknown; did you mean label?"),
    ],
    'name = "rate"': [('name = "method"', "axis 'method' is given more than once")],
    '"method.name" = "fedbb"': [
        (
            '"method.name" = "fedb"',
            "cell method = FedBB, rate = η = 0.05: method.name 'fedb' is unknown",
        ),
        ('"method.nam" = "fedbb"', "method.nam is unknown; did you mean name?"),
        (
            '"method.name" = "fedbb", "data.path.inner" = 1',
            "data.path.inner cannot be set: path is a value",
        ),
        ('"method.name" = "fedbb", seed = 4', "seed is given by the grid itself"),
    ],
    "number = 3": [
        ("number = 0", "rounds.number = 0 is refused"),
        ("number = 3 3", "is not valid TOML"),
    ],
}


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [(right, wrong, told) for right, cases in MISTAKES.items() for wrong, told in cases],
)
def test_a_mistake_in_a_grid_is_told_with_its_place(tmp_path, right, wrong, message):
    path = write_grid(tmp_path, change=lambda text: text.replace(right, wrong, 1))
    told = refused(path)
    assert str(path) in told
    assert message in told


@pytest.mark.parametrize(
    ("overlay", "message"),
    [
        ('axis = [{ name = "rte", value = [{ label = "x" }] }]', "did you mean rate?"),
        (
            'axis = [{ name = "method", value = [{ label = "FedBV" }] }]',
            "axis method has no label 'FedBV'; did you mean FedBB?",
        ),
        ('skip = [{ where = { mthod = "FedBB" }, why = "x" }]', "axis 'mthod' is unknown"),
        ('skip = [{ where = { method = "FedBB" } }]', "skip 1 why is missing"),
        ("seeds = [1, 1]", "seed '1' is given more than once"),
        ("rounds = 3", "rounds is unknown"),
    ],
)
def test_a_mistake_in_an_overlay_is_told_with_its_file(path, overlay, message):
    told = refused(path, overlay)
    assert "overlay0.toml" in told
    assert message in told


def test_files_that_are_not_there_are_named(path):
    with pytest.raises(RecipeError, match=r"nowhere\.toml cannot be read"):
        read_grid(path.with_name("nowhere.toml"))
    with pytest.raises(RecipeError, match=r"nowhere\.toml cannot be read"):
        read_grid(path, [path.with_name("nowhere.toml")])


def test_text_that_is_not_utf8_is_refused(path):
    path.write_bytes(b"title = '\xff'")
    assert "is not valid TOML" in refused(path)


@pytest.mark.parametrize(
    ("only", "number"),
    [
        (["FedBB"], 4),
        (["fedbb"], 4),
        (["Fed"], 8),
        (["η = 0.1"], 4),
        (["FedBB & seed 1"], 2),
        (["FedBB & η = 0.1 & seed 1"], 1),
        (["FedBB", "seed 0"], 6),
        (["fedavg_*_seed1_*"], 2),
    ],
)
def test_texts_choose_cells_in_the_grids_order(path, only, number):
    grid = read(path)
    chosen = select(grid, only).cells
    assert len(chosen) == number
    assert list(chosen) == [cell for cell in grid.cells if cell in chosen]


def test_a_text_that_is_a_label_chooses_no_longer_one(path):
    grid = read(path)
    longer = replace(grid.cells[0], at={**grid.cells[0].at, "method": "FedAvg+FedBB"})
    widened = replace(
        grid, axes={**grid.axes, "method": ("FedAvg+FedBB", "FedBB")}, cells=(longer, grid.cells[4])
    )
    assert select(widened, ["FedBB"]).cells == (grid.cells[4],)


def test_the_digest_of_a_name_chooses_as_a_whole_only(path):
    grid = read(path)
    digest = grid.cells[2].name.rpartition("_")[2]
    assert select(grid, [digest]).cells == (grid.cells[2],)
    assert select(grid, [grid.cells[2].name]).cells == (grid.cells[2],)
    with pytest.raises(RecipeError, match="no cell matches"):
        select(grid, [digest[1:]])


def test_a_text_that_chooses_nothing_is_refused(path):
    with pytest.raises(RecipeError, match=r"no cell matches 'FedBC'; did you mean FedBB\?"):
        select(read(path), ["FedBC"])


def test_without_texts_all_cells_stay(path):
    assert select(read(path), []) == read(path)
