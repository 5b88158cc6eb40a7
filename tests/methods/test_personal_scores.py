"""Scores of the clients' own models on their own test data during a run."""

import numpy as np
import pytest

from fedbb.errors import RecipeError
from fedbb.evaluation.own_models import PERSONAL_SCORES, PersonalScores
from fedbb.evaluation.sites import SiteScores
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import make_recipe
from fedbb.runs.folder import RunFolder
from helpers.commands import fedbb as command
from helpers.flower_loopback import flower_run, take_identity
from helpers.small_run import finish, small_recipe, small_values, without_seconds

SKEW = {"kind": "label-skew", "clients": 3, "concentration": 0.5, "min_samples": 6}


def recipe_of(tmp_path, name, **changes):
    data = {"name": "npz", "path": str(tmp_path / "small.npz"), "partition": SKEW, "own_test": 0.3}
    values = {
        "data": data,
        "model": {"name": "mlp"},
        "method": {"name": name},
        "rounds": {"number": 3},
        "evaluation": {"personal": 2},
    }
    return small_recipe(tmp_path, **{**values, **changes})


def test_the_figures_have_the_published_numbers():
    """Accuracies .9, .5 and .7 of 10, 30 and 60 samples: by samples .66, plain .7."""
    numbers = zip((0.9, 0.5, 0.7), (10, 30, 60), strict=True)
    sites = tuple(
        SiteScores(client, samples, 2, {"accuracy": value, "auroc": np.nan})
        for client, (value, samples) in enumerate(numbers)
    )
    found = PersonalScores(sites).to_json()["own"]
    assert found.keys() == {"accuracy"}
    assert found["accuracy"]["mean_by_samples"] == pytest.approx(0.66)
    assert found["accuracy"]["mean"] == pytest.approx(0.7)
    assert found["accuracy"]["std"] == pytest.approx(0.2)
    assert found["accuracy"]["worst"] == found["accuracy"]["worst_tenth"] == 0.5


@pytest.mark.parametrize("name", ["ditto", "fedper"])
def test_every_second_round_and_the_last_have_them_on_any_engine(tmp_path, monkeypatch, name):
    take_identity(monkeypatch)
    recipe = recipe_of(tmp_path, name)
    _, records = finish(recipe, tmp_path / "inline")
    assert [PERSONAL_SCORES in record for record in records] == [False, True, True]
    last = records[-1][PERSONAL_SCORES]
    assert ("shared" in last) == (name == "ditto")
    sites = RunFolder(tmp_path / "inline").read_json("scores.json")["final"]["sites"]
    kind = "shared" if name == "ditto" else "own"
    accuracies = [site["macro"]["accuracy"] for site in sites]
    assert last[kind]["accuracy"]["mean"] == pytest.approx(np.mean(accuracies))
    _, flower = flower_run(recipe, tmp_path / "flower")
    assert without_seconds(flower) == without_seconds(records)
    shown = command("show", tmp_path / "inline", monkeypatch=monkeypatch).out
    assert "on the own test data of 3 clients" in " ".join(shown.split())


def test_scores_during_a_run_change_no_bit(tmp_path):
    sums = []
    for name, changes in {"with": {}, "without": {"evaluation": {}}}.items():
        recipe = recipe_of(tmp_path, "ditto", **changes)
        sums.append(finish(recipe, tmp_path / name)[0]["sha256"])
    assert sums[0] == sums[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ditto", "pfedla"])
def test_the_pool_and_a_resumed_run_have_the_same_records(tmp_path, name):
    _, records = finish(recipe_of(tmp_path, name), tmp_path / "inline")
    _, pooled = finish(recipe_of(tmp_path, name, engine="pool"), tmp_path / "pool", workers=2)
    assert without_seconds(pooled) == without_seconds(records)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": {"name": "fedavg"}}, "FedAvg leaves none with them"),
        ({"data": None}, "evaluation.personal needs data.own_test"),
        ({"privacy": "masked"}, 'evaluation.personal and privacy = "masked" exclude each other'),
    ],
)
def test_where_there_are_none_they_are_refused(tmp_path, changes, message):
    values = small_values(tmp_path / "small.npz", method={"name": "ditto"})
    values |= {"evaluation": {"personal": 1}, "data": values["data"] | {"own_test": 0.3}} | changes
    values["data"] = values["data"] or small_values(tmp_path / "small.npz")["data"]
    with pytest.raises(RecipeError, match=message):
        check_recipe(make_recipe(values))
