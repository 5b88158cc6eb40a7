import json

from fedbb.runs.runner import run
from helpers.commands import fedbb
from helpers.small_run import small_recipe

PARTITION = {"kind": "even", "clients": 4}


def run_of(tmp_path, **changes):
    recipe = small_recipe(tmp_path)
    data = recipe.data.model_dump() | {"partition": PARTITION}
    recipe = small_recipe(tmp_path, data=data, rounds={"number": 2}, **changes)
    list(run(recipe, tmp_path / "run"))
    return tmp_path / "run"


def test_an_open_run_is_told_client_by_client(tmp_path, monkeypatch):
    done = fedbb("audit", run_of(tmp_path), monkeypatch=monkeypatch)
    assert done.code == 0
    assert 'privacy = "none"' in done.out
    assert done.out.count("dispersion R") == 4
    assert "every parameter and buffer" in done.out
    assert "rounds 1 to 2" in done.out


def test_a_private_run_is_told_as_sums_on_the_screen_and_as_json(tmp_path, monkeypatch):
    path = run_of(tmp_path, privacy="masked")
    done = fedbb("audit", path, monkeypatch=monkeypatch)
    assert done.code == 0
    assert "4 clients together" in done.out
    assert "No client's weight" in done.out
    assert "dispersion R" not in done.out
    found = json.loads(fedbb("audit", path, "--json", monkeypatch=monkeypatch).out)
    assert found["privacy"] == "masked"
    samples = [seen["value"] for seen in found["seen"] if seen["what"] == "samples"]
    assert samples == [60]
    assert fedbb("audit", path, "--quiet", monkeypatch=monkeypatch).out == ""


def test_a_private_run_is_shown_and_reported_without_its_clients(tmp_path, monkeypatch):
    path = run_of(tmp_path, privacy="masked")
    shown = fedbb("show", path, monkeypatch=monkeypatch)
    assert shown.code == 0, shown.err
    assert "4 clients" in shown.out
    assert "positives" not in shown.out
    assert "dispersion" not in shown.out
    page = tmp_path / "report.html"
    done = fedbb("report", tmp_path, "--out", page, monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    assert page.exists()
    done = fedbb("compare", path, path, monkeypatch=monkeypatch)
    assert done.code == 0, done.err


def test_a_private_run_shows_no_loss_while_it_runs(tmp_path, monkeypatch):
    recipe = tmp_path / "recipe.json"
    values = small_recipe(tmp_path, privacy="masked", rounds={"number": 1})
    recipe.write_text(values.model_dump_json(exclude_none=True))
    done = fedbb("run", recipe, "--out", tmp_path / "run", monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    assert "loss –" in done.out


def test_a_folder_without_a_run_is_refused(tmp_path, monkeypatch):
    done = fedbb("audit", tmp_path, monkeypatch=monkeypatch)
    assert done.code == 2
    assert "is not a run folder" in done.err
