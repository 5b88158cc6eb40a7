"""Model cards: what they state of a run, and what they leave to be filled in."""

import json
import re

import pytest

from fedbb.errors import RunError
from fedbb.recipes.reader import make_recipe
from fedbb.report.model_card import TO_FILL, CardFields, model_card
from fedbb.report.statistics import wilson_interval
from fedbb.runs.runner import run

RECIPE = {
    "data": {"name": "digits", "long_tail": 0.1, "partition": {"clients": 3, "concentration": 0.5}},
    "method": {"name": "fedbb", "options": {"mu": 2.0}},
    "local": {"lr": 0.05},
    "rounds": {"number": 2},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "long_tail"
    for _ in run(make_recipe(RECIPE, "test"), path, workers=1):
        pass
    return path


def rows_of(card, first):
    """Return the cells of the table whose first column has this title."""
    lines = card.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_scores_by_class_carry_intervals(folder):
    card = model_card(folder)
    test = json.loads((folder / "summary.json").read_text())["final"]["scores"]["test"]
    cases = json.loads((folder / "federation.json").read_text())["scored_cases"]["test"]
    part = card[card.index("## Evaluation") :]
    for place, row in enumerate(rows_of(part, "class")):
        recall, number = test["per_class"]["recall"][place], cases["positive"][place]
        interval = wilson_interval(recall, number)
        assert row[1] == f"{number:,.0f}"
        assert (
            row[2] == f"{100 * recall:.1f} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"
        )


def test_a_card_states_data_method_and_origin(folder):
    card = model_card(folder)
    summary = json.loads((folder / "summary.json").read_text())
    for text in ("small-cnn", "FedBB", "mu = 2.0", summary["sha256"], "multi-class", "1 × 8 × 8"):
        assert text in card
    held = rows_of(card, "class")
    positives = json.loads((folder / "federation.json").read_text())["positives"]
    assert [row[1] for row in held] == [f"{count:,.0f}" for count in positives]


def test_open_fields_are_marked_and_can_be_given(folder):
    bare = model_card(folder)
    assert bare.count(TO_FILL) == 4
    full = model_card(folder, CardFields("apache-2.0", "public domain", "a@b.c", "Tests."))
    assert TO_FILL not in full
    assert re.search(r'^license: "apache-2.0"$', full, re.MULTILINE)


def test_the_best_round_has_a_card_that_names_its_bias(folder):
    assert "chosen by the test data" in model_card(folder, best=True)
    assert "chosen by the test data" not in model_card(folder)


def test_few_test_cases_are_a_limit(folder):
    # Digits have 35 to 37 test cases of each class, so none is below the limit.
    assert "Fewer than" not in model_card(folder)
    path = folder / "federation.json"
    content = json.loads(path.read_text())
    changed = json.loads(path.read_text())
    changed["scored_cases"]["test"]["positive"][3] = 4.0
    try:
        path.write_text(json.dumps(changed))
        assert "Fewer than 30 test cases of: 3 (4)" in model_card(folder)
    finally:
        path.write_text(json.dumps(content))


def test_an_unfinished_run_has_no_card(tmp_path):
    records = run(make_recipe(RECIPE, "test"), tmp_path / "run", workers=1)
    next(records)
    records.close()
    with pytest.raises(RunError, match="unfinished"):
        model_card(tmp_path / "run")
