import json

import pytest

from fedbb.runs.runner import run
from helpers.commands import fedbb
from helpers.small_run import finish, small_recipe


def test_show_tells_classes_clients_and_the_end(tmp_path, monkeypatch):
    list(run(small_recipe(tmp_path), tmp_path / "run"))
    done = fedbb("show", tmp_path / "run", monkeypatch=monkeypatch)
    assert done.code == 0
    assert "fedbb on" in done.out
    assert "4 of 4 rounds" in done.out
    assert "dispersion" in done.out
    assert "chosen on test data" in done.out


def test_show_tells_how_to_go_on_with_an_unfinished_run(tmp_path, monkeypatch):
    records = run(small_recipe(tmp_path), tmp_path / "run")
    next(records)
    records.close()
    done = fedbb("show", tmp_path / "run", monkeypatch=monkeypatch)
    assert "1 of 4 rounds" in done.out
    assert "unfinished" in done.out


def test_show_as_json_holds_recipe_federation_rounds_and_summary(tmp_path, monkeypatch):
    list(run(small_recipe(tmp_path), tmp_path / "run"))
    parts = json.loads(fedbb("show", tmp_path / "run", "--json", monkeypatch=monkeypatch).out)
    assert list(parts) == ["recipe", "federation", "rounds", "summary", "scores"]
    assert len(parts["rounds"]) == 4


def test_a_model_that_answers_alike_for_all_is_told(tmp_path, monkeypatch):
    list(run(small_recipe(tmp_path), tmp_path / "run"))
    path = tmp_path / "run" / "summary.json"
    assert "the same scores" not in fedbb("show", tmp_path / "run", monkeypatch=monkeypatch).out
    summary = json.loads(path.read_text("utf-8"))
    per_class = summary["final"]["scores"]["test"]["per_class"]
    per_class["auroc"] = [0.5] * len(per_class["auroc"])
    per_class["recall"] = [1.0, *[0.0] * (len(per_class["recall"]) - 1)]
    path.write_text(json.dumps(summary), "utf-8")
    done = fedbb("show", tmp_path / "run", monkeypatch=monkeypatch)
    assert "gives every test sample the same scores" in " ".join(done.out.split())


def test_a_folder_without_a_run_is_refused(tmp_path, monkeypatch):
    done = fedbb("show", tmp_path, monkeypatch=monkeypatch)
    assert done.code == 2
    assert "is not a run folder" in done.err


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scored")
    recipe = small_recipe(folder, rounds={"number": 1}, evaluation={"bootstrap": 30})
    data = recipe.data.model_copy(update={"own_test": 0.25})
    evaluation = recipe.evaluation.model_copy(update={"logit_adjustment": True})
    finish(recipe.model_copy(update={"data": data, "evaluation": evaluation}), folder / "run")
    return folder / "run"


def test_show_sums_scores_up_and_unfolds_them_on_request(scored, monkeypatch):
    plain = fedbb("show", scored, monkeypatch=monkeypatch).out
    assert "top-label ECE" in plain
    assert "operating point" in plain
    assert "3 sites on their own test data" in plain
    assert "Confusion" not in plain
    details = fedbb("show", scored, "--scores", monkeypatch=monkeypatch).out
    assert "Confusion" in details
    assert "added to the logit" in details
    sites = fedbb("show", scored, "--sites", monkeypatch=monkeypatch).out
    assert "worst tenth" in sites
    assert "Confusion" not in sites
    parts = json.loads(fedbb("show", scored, "--json", monkeypatch=monkeypatch).out)
    assert len(parts["scores"]["final"]["sites"]) == 3


def test_show_says_why_a_run_has_no_scores_of_sites(tmp_path, monkeypatch):
    finish(small_recipe(tmp_path, rounds={"number": 1}), tmp_path / "run")
    answer = fedbb("show", tmp_path / "run", "--sites", monkeypatch=monkeypatch)
    assert answer.code == 2
    assert "set data.own_test in its recipe" in answer.err
    (tmp_path / "run" / "scores.json").unlink()  # as in a folder of an older version
    assert fedbb("show", tmp_path / "run", monkeypatch=monkeypatch).code == 0
    assert fedbb("card", tmp_path / "run", monkeypatch=monkeypatch).code == 0
    assert fedbb("show", tmp_path / "run", "--scores", monkeypatch=monkeypatch).code == 2


def test_card_and_report_have_the_scores_of_classes_and_sites(scored, tmp_path, monkeypatch):
    card = fedbb("card", scored, monkeypatch=monkeypatch).out
    assert "<details><summary>All scores" in card
    assert "Fairness over sites" in card
    page = tmp_path / "page.html"
    assert fedbb("report", scored, "--out", page, monkeypatch=monkeypatch).code == 0
    text = page.read_text("utf-8")
    assert "Scores at the sites, each on its own test data" in text
    assert "Further test scores of the final model" in text
