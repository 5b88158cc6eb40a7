"""The study's tables: means, paired differences and what was not run, from stored results."""

import csv
import json
import re

import pytest
from matplotlib.text import Text
from studies.stored import GRIDS, read_stored

from fedbb.recipes.grid import read_grid
from helpers.small_grid import write_grid
from studies import figures, page, personal, tables

VALUES = {
    ("FedAvg", "η = 0.05"): (0.50, 0.54),
    ("FedAvg", "η = 0.1"): (0.60, 0.60),
    ("FedBB", "η = 0.05"): (0.56, 0.58),
    ("FedBB", "η = 0.1"): (0.55, 0.65),
}
MADE = {
    "fedbb": "1",
    "torch": "2",
    "numpy": "3",
    "python": "3.11",
    "cores": "2",
    "vectors": "AVX2",
}


def store(folder, left_out=(), diverged=()):
    """Write a small grid and results for it, and return both as they are read back."""
    grid = write_grid(folder)
    lines, lost = [], []
    for cell in read_grid(grid).cells:
        if cell.title in diverged:
            lost.append({"cell": cell.name, **cell.at, "seed": cell.seed, "why": "no number"})
        elif cell.title not in left_out:
            score = VALUES[cell.at["method"], cell.at["rate"]][cell.seed]
            row = {"cell": cell.name, **cell.at, "seed": cell.seed, "test accuracy": score}
            row["train images"] = 1000 + cell.seed
            lines.append(row)
    out = folder / "stored" / "small"
    out.mkdir(parents=True)
    write_rows(out / "cells.csv", lines)
    if lost:
        write_rows(out / "diverged.csv", lost)
    cases = {"cat": 10, "dog": 90}
    classes = [
        {"cell": row["cell"], "class": name, "train cases": number, "recall": row["test accuracy"]}
        for row in lines
        for name, number in cases.items()
    ]
    write_rows(out / "classes.csv", classes)
    about = {"command": "fedbb sweep small", "core hours": 1.5, "note": "", "made with": [MADE]}
    (out / "about.json").write_text(json.dumps(about), "utf-8")
    return read_stored("small", folder / "stored", folder)


def write_rows(path, rows):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def test_scores_are_mean_and_deviation_in_points_with_numbered_rows(tmp_path):
    assert tables.scores(store(tmp_path), "test accuracy", "1") == "\n".join(
        [
            "| row | method | η = 0.05 | η = 0.1 |",
            "| --- | --- | --: | --: |",
            "| 1.1 | FedAvg | 52.0 ± 2.8 | **60.0 ± 0.0** |",
            "| 1.2 | FedBB | **57.0 ± 1.4** | **60.0 ± 7.1** |",
        ]
    )


def test_a_mean_over_fewer_seeds_is_not_called_the_highest(tmp_path):
    text = tables.scores(store(tmp_path, ("FedBB · η = 0.05 · seed 0",)), "test accuracy", "1")
    assert "| FedAvg | 52.0 ± 2.8 |" in text
    assert "| FedBB | 58.0 (1 of 2 seeds) |" in text


def test_cells_with_fewer_seeds_say_so_and_empty_ones_show_a_dash(tmp_path):
    left = ("FedAvg · η = 0.05 · seed 1", "FedBB · η = 0.1 · seed 0", "FedBB · η = 0.1 · seed 1")
    stored = store(tmp_path, left)
    text = tables.scores(stored, "test accuracy", "1")
    assert "| 1.1 | FedAvg | 50.0 (1 of 2 seeds) |" in text
    assert "| 1.2 | FedBB | 57.0 ± 1.4 | – |" in text
    text = tables.origin(stored)
    assert f"Not run: {', '.join(left)}." in text
    assert "5 of 8 cells; 1.5 core hours" in text


def test_what_diverged_is_told_and_does_not_count_as_not_run(tmp_path):
    lost = ("FedAvg · η = 0.05 · seed 1", "FedBB · η = 0.1 · seed 0", "FedBB · η = 0.1 · seed 1")
    stored = store(tmp_path, diverged=lost)
    text = tables.scores(stored, "test accuracy", "1")
    assert "| 1.1 | FedAvg | 50.0 (1 of 2 seeds, 1 diverged) |" in text
    assert "| 1.2 | FedBB | 57.0 ± 1.4 | diverged |" in text
    text = tables.origin(stored)
    assert "Not run" not in text
    assert text.count(" diverged: no number.") == 3


def test_the_choice_of_a_row_is_bold_where_columns_are_to_choose_from(tmp_path):
    text = tables.scores(store(tmp_path), "test accuracy", "1", choosing=True)
    assert "| 1.1 | FedAvg | 52.0 ± 2.8 | **60.0 ± 0.0** |" in text
    assert "| 1.2 | FedBB | 57.0 ± 1.4 | **60.0 ± 7.1** |" in text


def test_many_cells_that_were_not_run_are_counted_by_seed(tmp_path):
    titles = [cell.title for cell in read_grid(write_grid(tmp_path)).cells]
    text = tables.origin(store(tmp_path, titles[:7]))
    assert "Not run: 4 cells of seed 0, 3 cells of seed 1." in text


def test_differences_are_paired_by_seed_with_interval_and_verdict(tmp_path):
    text = tables.differences(store(tmp_path), "test accuracy", [("FedBB", "FedAvg")])
    # 0.06 and 0.04: mean 5, deviation √2; t(0.975; 1) = 12.706, so the interval reaches 12.7.
    assert (
        "| FedBB − FedAvg | +5.0 [−7.7, +17.7], no clear difference (2 of 2 seeds) "
        "| 0.0 [−63.5, +63.5], no clear difference (1 of 2 seeds) |"
    ) in text
    turned = tables.differences(read_again(tmp_path), "test accuracy", [("FedAvg", "FedBB")])
    assert "−5.0 [−17.7, +7.7], no clear difference (2 of 2 seeds)" in turned


def test_a_method_is_neither_ahead_nor_behind_where_scores_are_equal(tmp_path):
    same = tables.differences(store(tmp_path), "test accuracy", [("FedBB", "FedBB")])
    assert "| FedBB − FedBB | equal | equal |" in same


def read_again(folder):
    return read_stored("small", folder / "stored", folder)


def test_one_seed_is_no_verdict(tmp_path):
    stored = store(tmp_path, ("FedAvg · η = 0.05 · seed 1",))
    text = tables.differences(stored, "test accuracy", [("FedBB", "FedAvg")])
    assert "| +6.0, one seed |" in text


def test_a_rate_is_chosen_by_its_mean_among_those_with_every_seed(tmp_path):
    stored = store(tmp_path, ("FedBB · η = 0.1 · seed 0",))
    assert tables.chosen(stored, "test accuracy") == {"FedAvg": "η = 0.1", "FedBB": "η = 0.05"}


def test_classes_are_listed_from_the_most_frequent(tmp_path):
    text = tables.by_class(store(tmp_path), "recall", {"rate": "η = 0.05"}, ["FedBB", "FedAvg"])
    assert text.splitlines()[2:] == [
        "| dog | 90 | 57.0 ± 1.4 | 52.0 ± 2.8 |",
        "| cat | 10 | 57.0 ± 1.4 | 52.0 ± 2.8 |",
    ]


def test_a_part_may_show_its_classes(tmp_path):
    classes = page.Classes(("recall",), {"rate": "η = 0.05"}, ("FedBB",))
    part = page.Part("1", "small", ("test accuracy",), classes=classes)
    text = page.shown(part, store(tmp_path))
    assert "**Test recall of each class, η = 0.05**\n\n| class | training cases | FedBB |" in text


def test_the_scale_names_all_that_differs_between_cells(tmp_path):
    text = tables.scale(store(tmp_path))
    assert "1,000 or 1,001 training images" in text
    assert "learning rate 0.05 or 0.1" in text


def test_nothing_stored_is_none(tmp_path):
    assert read_stored("small", tmp_path, tmp_path) is None


@pytest.mark.parametrize("name", page.PAGES)
def test_a_page_has_a_place_for_every_part_and_shows_what_is_kept(name):
    text = (page.ROOT / "docs" / name).read_text("utf-8")
    parts = page.PAGES[name]
    assert f"<!-- cost -->\n{page.cost(parts)}\n<!-- /cost -->" in text
    for part in parts:
        stored = read_stored(part.grid)
        content = page.NOT_RUN if stored is None else page.shown(part, stored)
        assert f"<!-- {part.grid} -->\n{content}\n<!-- /{part.grid} -->" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "made"),
    [("results.md", page.recent_tables), ("results-small.md", page.small_tables)],
)
def test_a_page_shows_the_tables_that_no_grid_has(name, made):
    text = (page.ROOT / "docs" / name).read_text("utf-8")
    for place, table in made().items():
        assert f"<!-- {place} -->\n{table}\n<!-- /{place} -->" in text


def test_no_two_tables_have_the_same_number():
    shown = [page.numbered(p, place) for p in page.PARTS for place in range(len(p.measures))]
    assert len({*shown, "8a"}) == len(shown) + 1
    assert {"1", "2a", "2b", "6c", "6d", "6e", "7a"} <= {*shown}


@pytest.mark.parametrize("part", page.PARTS, ids=lambda part: part.grid)
def test_who_is_set_beside_whom_has_a_row(part):
    grid = read_grid(GRIDS / f"{part.grid}.toml")
    assert {label for pair in part.pairs for label in pair} <= {*grid.axes[grid.rows]}


NUMBER = r"\d+[a-h]?\.\d+|\d+[a-h]"
NUMBERS = rf"(?:{NUMBER})(?:(?:,| and| to| beside)\s(?:{NUMBER})\b)*"
ROWS = rf"\brows?\s({NUMBERS})"
POINTERS = {"results.md": ROWS, "results-small.md": ROWS, "advice.md": rf"\(({NUMBERS})"}


@pytest.mark.parametrize("name", POINTERS)
def test_a_claim_points_to_rows_that_are_there(name):
    docs = page.ROOT / "docs"
    results = "".join((docs / of).read_text("utf-8") for of in page.PAGES)
    rows = {*re.findall(r"^\| (\d+[a-h]?\.\d+) \|", results, re.M)}
    known = rows | {row.split(".")[0] for row in rows}
    claims = re.findall(POINTERS[name], (docs / name).read_text("utf-8"))
    pointed = {number for numbers in claims for number in re.findall(NUMBER, numbers)}
    assert len(pointed) > 10
    assert pointed <= known


def test_rows_alone_keep_their_numbers_and_are_compared_with_each_other(tmp_path):
    assert tables.scores(store(tmp_path), "test accuracy", "1", only=["FedBB"]) == "\n".join(
        [
            "| row | method | η = 0.05 | η = 0.1 |",
            "| --- | --- | --: | --: |",
            "| 1.2 | FedBB | 57.0 ± 1.4 | 60.0 ± 7.1 |",
        ]
    )


def test_clients_are_told_by_their_mean_and_by_the_worst_of_them():
    rows = [
        {"data": "δ = 0.1", "method": method, "seed": seed}
        | dict.fromkeys(personal.MODELS, 0.2 * client + 0.1 * seed + 0.05 * (method == "FedBB"))
        for method in personal.METHODS
        for seed in (0, 1)
        for client in (1, 3)
    ]
    lines = personal.table(rows).splitlines()
    assert (
        lines[2]
        == "| 8a.1 | δ = 0.1 | FedAvg | " + " | ".join(["45.0 ± 7.1; 25.0 ± 7.1"] * 4) + " |"
    )
    assert lines[6] == "| 8a.5 | LT, δ = 0.5 | FedAvg | " + " | ".join(["–; –"] * 4) + " |"
    (gaps,) = [line for line in lines if line.startswith("| FedBB − FedAvg |")]
    assert gaps.split(" | ")[1:4] == [
        "+5.0 [+5.0, +5.0], ahead (2 of 2 seeds)",
        "–",
        "+5.0 [+5.0, +5.0], ahead (2 of 2 seeds)",
    ]


def test_what_is_personalized_are_four_methods_on_every_seed_of_two_columns():
    cells = personal.wanted()
    assert len(cells) == 24
    assert {cell.at["method"] for cell in cells} == {*personal.METHODS}


@pytest.mark.parametrize("draw", [figures.by_row, figures.by_rate])
def test_figures_show_every_mean(tmp_path, draw):
    figure = draw(store(tmp_path), "test accuracy", "Small")
    drawn = {
        round(float(value), 6)
        for axes in figure.axes
        for line in axes.lines
        for value in (line.get_xdata() if draw is figures.by_row else line.get_ydata())
    }
    assert {52.0, 60.0, 57.0} <= drawn


@pytest.mark.parametrize("draw", [figures.by_row, figures.by_rate])
@pytest.mark.parametrize(
    ("left_out", "words"),
    [(4, "last round; one seed"), (1, "their mean; alone: one seed"), (0, "their mean")],
)
def test_a_figure_tells_what_rests_on_one_seed(tmp_path, draw, left_out, words):
    cells = read_grid(write_grid(tmp_path)).cells
    second = [cell.title for cell in cells if cell.seed == 1]
    figure = draw(store(tmp_path, second[:left_out]), "test accuracy", "Small")
    notes = [text.get_text().split("; each panel")[0] for text in figure.findobj(Text)]
    assert any(note.endswith(words) for note in notes)


@pytest.mark.parametrize(
    ("draw", "words"),
    [(figures.by_row, "1 diverged"), (figures.by_rate, "diverged: FedBB 1 at η = 0.1")],
)
def test_a_figure_tells_what_diverged(tmp_path, draw, words):
    cells = read_grid(write_grid(tmp_path)).cells
    lost = [cell.title for cell in cells if cell.seed == 1 and "FedBB · η = 0.1 " in cell.title]
    figure = draw(store(tmp_path, diverged=lost), "test accuracy", "Small")
    assert [words] == [t.get_text() for t in figure.findobj(Text) if "diverged" in t.get_text()]
