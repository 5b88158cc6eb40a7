"""The balanced classifier of the study: scores of a finished run, the choice, and what is won."""

import json

import pytest
from studies.collect import collect, write_rows
from studies.stored import GRIDS, read_rows

from fedbb.recipes.grid import read_grid
from helpers.small_grid import write_grid
from helpers.small_run import finish
from studies import figures, heads, winner


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small grid of which one cell has been run, and its classifiers scored."""
    folder = tmp_path_factory.mktemp("heads")
    path = write_grid(folder)
    cell = read_grid(path).cells[0]
    finish(cell.recipe, folder / "runs" / cell.name)
    heads.main([str(path), str(folder / "runs"), "--results", str(folder / "results")])
    return folder, path, cell


def rows_of(folder):
    return read_rows(folder / "results" / "small" / heads.FILE)


def test_the_trained_classifier_has_the_scores_of_the_run(finished):
    folder, path, _ = finished
    collect(path, folder / "runs", folder / "results" / "small")
    (stored,) = read_rows(folder / "results" / "small" / "cells.csv")
    rows = rows_of(folder)
    assert [row["head"] for row in rows] == [heads.TRAINED, *winner.CLOSED]
    assert float(rows[0]["test accuracy"]) == float(stored["test accuracy"])
    classes = read_rows(folder / "results" / "small" / "classes.csv")
    assert float(rows[0]["test worst class"]) == min(float(row["recall"]) for row in classes)


@pytest.mark.parametrize(
    ("head", "options"),
    [
        ("LDA", {}),
        ("LDA, s = 0.9", {"shrinkage": 0.9}),
        ("LDA, s = 0.3, blend 0.5", {"shrinkage": 0.3, "blend": 0.5}),
    ],
)
def test_a_closed_form_has_the_scores_of_a_run_that_serves_it(finished, tmp_path, head, options):
    folder, _, cell = finished
    served = cell.recipe.method.model_copy(
        update={"name": "fedavg+lda-head", "options": {"lda-head": options}}
    )
    summary, _ = finish(cell.recipe.model_copy(update={"method": served}), tmp_path / "run")
    (row,) = [row for row in rows_of(folder) if row["head"] == head]
    expected = summary["final"]["scores"]["test"]["macro"]["accuracy"]
    assert float(row["test accuracy"]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("labels", "scored"),
    [(["FedAvg"], True), (["FedBB"], False), (["FedAvg", "FedBB", "η = 0.1"], False)],
)
def test_only_cells_with_the_labels_asked_for_are_scored(finished, tmp_path, labels, scored):
    folder, path, _ = finished
    heads.main([str(path), str(folder / "runs"), "--results", str(tmp_path), "--only", *labels])
    assert (tmp_path / "small" / heads.FILE).exists() == scored


def test_stored_cells_are_not_scored_again(finished, capsys):
    folder, path, _ = finished
    heads.main([str(path), str(folder / "runs"), "--results", str(folder / "results")])
    assert capsys.readouterr().out == ""


def write_validation(folder, settings, scores):
    """Write validation scores of method and classifier, the same in each setting and measure."""
    for setting in settings:
        axis, label = setting.at
        rows = [
            {axis: label, "method": method, "head": head, "seed": seed}
            | {f"validation {name}": score for name in (setting.whole, "worst class")}
            for (method, head), score in scores.items()
            for seed in (100, 101)
        ]
        path = folder / setting.grid / heads.FILE
        path.parent.mkdir(exist_ok=True)
        write_rows(path, [*read_rows(path), *rows])


def test_one_method_is_chosen_for_a_task_and_a_classifier_for_each_setting(tmp_path):
    fashion = {
        ("FedAvg", heads.TRAINED): 0.9,
        ("FedAvg", "LDA"): 0.81,
        ("FedLC", "LDA"): 0.7,
        ("FedLC", "LDA, s = 0.9"): 0.8,
        ("Balanced softmax", "LDA"): 0.95,
    }
    write_validation(tmp_path, winner.CLASSES[:2], fashion)
    cifar = {("FedAvg", "LDA"): 0.6, ("FedLC", "LDA, blend 0.5"): 0.65, ("FedBB", "LDA"): 0.99}
    write_validation(tmp_path, winner.CLASSES[2:], cifar)
    films = {("FedAvg", "LDA"): 0.6, ("FedAvg", "LDA, s = 0.9"): 0.65}
    write_validation(tmp_path, winner.FILMS[:1], films)
    chosen = winner.choose(tmp_path)
    # FedLC's best: 0.8 and 0.65; FedAvg's: 0.81 and 0.6. FedBB lacks Fashion-MNIST.
    assert str(chosen) == (
        "Fashion-MNIST, δ = 0.1: FedLC + LDA, s = 0.9; "
        "Fashion-MNIST LT, δ = 0.5: FedLC + LDA, s = 0.9; "
        "CIFAR-10 features, δ = 0.1: FedLC + LDA, blend 0.5; "
        "CIFAR-10 features LT, δ = 0.5: FedLC + LDA, blend 0.5; "
        "X-ray features, sizes: FedAvg + LDA, s = 0.9"
    )
    assert [chosen.at(setting) for setting in winner.SETTINGS[-2:]] == [
        ("FedAvg", "LDA, s = 0.9"),
        ("", ""),
    ]
    lines = winner.candidates("9", tmp_path).splitlines()
    assert "| 9.2 | FedAvg + LDA, blend 0.5 | – | – | – | – | – | – |" in lines
    known = "81.0; 81.0 | 81.0; 81.0 | 60.0; 60.0 | 60.0; 60.0 | 60.0; 60.0"
    assert f"| 9.3 | FedAvg + LDA | {known} | – |" in lines


def test_nothing_is_chosen_without_validation_scores(tmp_path):
    assert winner.choose(tmp_path) is None


SEEDS = (1, 5, 6, 7)
"""One whose test scores were known at the choice, and three of the tables."""


def write_test(folder, setting, trained, fitted, left_out=()):
    """Write test scores of every rival as trained, and of FedAvg with the classifier."""
    axis, label = setting.at
    cells, classes = [], []
    for rival in winner.RIVALS:
        for seed in SEEDS:
            if rival in left_out:
                continue
            name = f"{rival}-{seed}"
            row = {"cell": name, axis: label, "method": rival, "seed": seed}
            cells.append({**row, f"test {setting.whole}": trained + 0.001 * (seed - 5)})
            classes += [
                {"cell": name, "class": c, setting.of_class: trained - 0.1 * c} for c in (0, 1)
            ]
    out = folder / setting.grid
    out.mkdir()
    write_rows(out / "cells.csv", cells)
    write_rows(out / "classes.csv", classes)
    (out / "about.json").write_text(json.dumps({}), "utf-8")
    own = [
        {axis: label, "method": "FedAvg", "head": "LDA", "seed": seed}
        | {f"test {setting.whole}": fitted + 0.002 * (seed - 5), "test worst class": fitted}
        for seed in SEEDS
    ]
    write_rows(out / heads.FILE, own)


def test_a_setting_is_won_only_ahead_of_every_rival_in_both_measures(tmp_path):
    setting = winner.SETTINGS[0]
    chosen = winner.Winner({setting.title: ("FedAvg", "LDA")})
    cases = {"won": (0.7, ()), "behind": (0.45, ()), "missing": (0.7, ("FedBB",))}
    for name, (fitted, left_out) in cases.items():
        (tmp_path / name).mkdir()
        write_test(tmp_path / name, setting, 0.5, fitted, left_out)
    # At 0.45 the worst class is ahead of 0.4, all classes are behind 0.5.
    won = {name: winner.is_won(chosen, setting, tmp_path / name) for name in cases}
    assert won == {"won": True, "behind": False, "missing": False}
    text = winner.tables(chosen, "9", tmp_path / "won")
    assert "in both measures in 1 of 6 settings: Fashion-MNIST, δ = 0.1." in text
    assert "Not run: Fashion-MNIST LT, δ = 0.5; CIFAR-10 features" in text
    figure = figures.by_setting(chosen, tmp_path / "won")
    assert len(figure.axes) == 1
    means = {round(float(line.get_xdata()[0]), 3) for line in figure.axes[0].lines}
    assert {50.1, 40.0, 70.2, 70.0} <= means
    assert "| 9a.6 | Balanced classifier | 70.2 ± 0.2 (3 of 5 seeds) |" in text


CHOICES = [setting for of_task in winner.TASKS for setting in of_task]


@pytest.mark.parametrize("setting", [*winner.SETTINGS, *CHOICES], ids=lambda s: s.title)
def test_every_setting_is_a_column_of_its_grid_with_rivals(setting):
    grid = read_grid(GRIDS / f"{setting.grid}.toml")
    axis, label = setting.at
    assert label in grid.axes[axis]
    if setting in winner.SETTINGS:
        lacking = {"FedLC"} if setting.whole == "auroc" else set()
        assert set(winner.REQUIRED) - set(grid.axes["method"]) == lacking
