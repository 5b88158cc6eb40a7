import json

from fedbb.runs.runner import run
from helpers.commands import fedbb
from helpers.small_run import small_recipe


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
    assert "is no run folder" in done.err
