"""Tuning chooses on validation data alone, tells edges, and goes on where it was stopped."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedbb
from fedbb.errors import DivergedError, RecipeError, RunError
from fedbb.recipes.reader import make_recipe, read_recipe
from fedbb.runs import tuning
from fedbb.runs.folder import RunFolder
from fedbb.runs.tuning import Search, default_searches, parse_search, value_at, with_settings
from helpers.small_run import small_recipe

pytest.importorskip("optuna")


def recipe_for(tmp_path, **changes):
    settings = {"data.validation": 0.3, "rounds.number": 2, "evaluation.bootstrap": 0} | changes
    return with_settings(small_recipe(tmp_path), settings)


def test_ranges_and_choices_are_read_from_text():
    assert parse_search("local.lr=0.001:1") == Search("local.lr", 0.001, 1)
    assert parse_search("local.epochs=1:4").is_whole
    assert parse_search("local.lr=0.001:0.01").is_log
    assert not parse_search("local.momentum=0.5:0.9").is_log
    assert parse_search('method.options.mu=1, 4.5, "unit"').choices == (1, 4.5, "unit")


@pytest.mark.parametrize(
    "text",
    ["local.lr", "=1:2", "local.lr=", "local.lr=1:2:3", "local.lr=2:1", "local.lr=a:b", "k=x"],
)
def test_what_is_no_search_is_refused(text):
    with pytest.raises(RecipeError, match="LOW:HIGH"):
        parse_search(text)


@given(st.floats(0.001, 1.0))
def test_a_value_is_at_the_edge_within_a_twentieth_of_the_scale(value):
    search = Search("local.lr", 0.001, 1.0)  # three decades
    assert search.is_at_edge(value) == (value <= 10**-2.85 or value >= 10**-0.15)


def test_choices_have_edges_if_they_are_numbers():
    assert Search("k", choices=(1, 3, 10)).is_at_edge(10)
    assert not Search("k", choices=(1, 3, 10)).is_at_edge(3)
    assert not Search("k", choices=(1, "unit", 10)).is_at_edge(10)
    assert not Search("k", choices=(True, False)).is_at_edge(True)


def test_options_are_searched_around_their_values_as_far_as_the_method_takes_them(tmp_path):
    recipe = with_settings(
        small_recipe(tmp_path), {"method": {"name": "fedbb", "options": {"mu": 2.0}}}
    )
    found = {
        one.key.removeprefix("method.options."): one.choices for one in default_searches(recipe)
    }
    assert found["mu"] == (0.2, 0.666667, 2.0, 6.0, 20.0)
    assert found["beta"] == (0.999, 0.9997, 0.9999, 0.99996667, 0.99999)
    assert max(found["gamma"]) == 1.0
    for key, choices in found.items():
        for value in choices:
            fedbb.methods.fedbb(**{key: value})
    pair = with_settings(recipe, {"method": {"name": "moon+fedlc", "options": {}}})
    assert {one.key for one in default_searches(pair)} == {
        "method.options.moon.mu",
        "method.options.moon.temperature",
        "method.options.fedlc.tau",
    }
    assert value_at(pair, "method.options.moon.temperature") == 0.5


def test_the_learning_rate_comes_first_and_the_best_trials_settings_are_written(tmp_path):
    recipe = recipe_for(tmp_path, **{"method.name": "fedprox"})
    told = []
    search = ["method.options.mu=0.01,1.0", "local.lr=0.00001,0.05"]
    tuned = fedbb.tune(recipe, tmp_path / "t", search=search, workers=0, progress=told.append)
    assert [trial.stage for trial in tuned.trials] == [1, 1, 2, 2]
    assert told == tuned.trials
    first, second = tuned.trials[:2], tuned.trials[2:]
    assert {tuple(trial.values) for trial in second} == {("method.options.mu",)}
    best = max(first, key=lambda trial: trial.score)
    assert tuned.recipe.local.lr == best.values["local.lr"]
    assert tuned.score == max(trial.score for trial in second)
    assert read_recipe(tmp_path / "t" / "recipe.toml") == tuned.recipe
    report = json.loads((tmp_path / "t" / "tuning.json").read_text())
    assert report["score"] == tuned.score
    assert len(report["trials"]) == 4


def test_trials_are_judged_by_validation_data_after_the_last_round(tmp_path):
    recipe = recipe_for(tmp_path)
    tuned = fedbb.tune(
        recipe, tmp_path / "t", search=["local.lr=0.05,0.1"], seeds=[100, 101], workers=0
    )
    runs = [RunFolder(path) for path in (tmp_path / "t" / "runs").iterdir()]
    for trial in tuned.trials:
        own = [
            run
            for run in runs
            if run.read_json("recipe.json")["local"]["lr"] == trial.values["local.lr"]
        ]
        assert sorted(run.read_json("recipe.json")["seed"] for run in own) == [100, 101]
        scores = [run.records()[-1]["scores"]["validation"]["macro"][tuned.metric] for run in own]
        assert trial.score == pytest.approx(sum(scores) / 2, abs=1e-12)
        assert trial.rounds == 4


def test_a_range_is_sampled_alike_after_an_interruption(tmp_path, monkeypatch):
    recipe = recipe_for(tmp_path)
    options = {"search": ["local.lr=0.001:1"], "trials": 6, "workers": 0}
    whole = fedbb.tune(recipe, tmp_path / "whole", **options)
    # The recipe's own value is tried first; a tuned recipe is never worse on validation data.
    assert whole.trials[0].values["local.lr"] == recipe.local.lr
    seen = []

    def stop(trial):
        seen.append(trial)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedbb.tune(recipe, tmp_path / "parts", **options, progress=stop)
    train = tuning.run_recipe

    def killed(*args, **settings):
        yield next(train(*args, **settings))
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "run_recipe", killed)
    with pytest.raises(KeyboardInterrupt):
        fedbb.tune(recipe, tmp_path / "parts", **options)
    monkeypatch.undo()
    parts = fedbb.tune(recipe, tmp_path / "parts", **options)
    assert parts.trials == whole.trials
    assert parts.recipe == whole.recipe


def test_a_finished_tuning_trains_nothing_again(tmp_path, monkeypatch):
    recipe = recipe_for(tmp_path)
    options = {"search": ["local.lr=0.01,0.1"], "workers": 0}
    before = fedbb.tune(recipe, tmp_path / "t", **options)
    monkeypatch.setattr(tuning, "run_recipe", None)
    assert fedbb.tune(recipe, tmp_path / "t", **options) == before


def test_a_trial_that_does_worse_than_most_is_stopped_and_one_that_diverges_is_no_failure(
    tmp_path, monkeypatch
):
    recipe = recipe_for(tmp_path, **{"rounds.number": 6})
    train = tuning.run_recipe

    def diverging(recipe, *args, **settings):
        if recipe.local.lr > 0.5:
            raise DivergedError("round 1: the loss is not finite")
        yield from train(recipe, *args, **settings)

    monkeypatch.setattr(tuning, "run_recipe", diverging)
    rates = "local.lr=0.05,0.1,0.2,0.3,0.0000001,0.9"
    tuned = fedbb.tune(recipe, tmp_path / "t", search=[rates], workers=0)
    by_rate = {trial.values["local.lr"]: trial for trial in tuned.trials}
    assert by_rate[0.9].stopped.startswith("diverged: round 1")
    assert by_rate[1e-7].stopped.startswith("worse than most after round")
    assert by_rate[1e-7].rounds < 6
    assert by_rate[1e-7].score is None


def test_a_best_value_at_the_edge_is_told(tmp_path):
    recipe = recipe_for(tmp_path)
    tuned = fedbb.tune(
        recipe, tmp_path / "t", search=["local.lr=0.0000001,0.000001,0.05"], workers=0
    )
    assert tuned.warnings == [
        "local.lr = 0.05 is at the edge of what was tried; a better value may lie beyond: search a "
        "wider range"
    ]


@pytest.mark.parametrize(
    ("changes", "options", "error", "message"),
    [
        ({"data.validation": 0.0}, {}, RecipeError, "tuning needs validation data"),
        ({}, {"trials": 0}, RecipeError, "a trial and a seed at least"),
        ({}, {"seeds": []}, RecipeError, "a trial and a seed at least"),
        ({}, {"search": ["local.speed=1,2"]}, RecipeError, "local.speed"),
        ({}, {"search": ["local.lr=1,2", "local.lr=3,4"]}, RecipeError, "searched twice"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_is_written(
    tmp_path, changes, options, error, message
):
    recipe = recipe_for(tmp_path, **changes)
    with pytest.raises(error, match=message):
        fedbb.tune(recipe, tmp_path / "t", workers=0, **options)
    assert not (tmp_path / "t").exists()


def test_the_folder_of_another_tuning_is_refused(tmp_path):
    fedbb.tune(recipe_for(tmp_path), tmp_path / "t", search=["local.lr=0.1,0.2"], workers=0)
    with pytest.raises(RunError, match="a tuning of another recipe, search or seeds"):
        fedbb.tune(recipe_for(tmp_path), tmp_path / "t", search=["local.lr=0.1,0.3"], workers=0)


def test_a_tuned_recipe_reads_back_whatever_it_holds(tmp_path):
    recipe = recipe_for(tmp_path, **{"name": "ä b".replace(" ", "-"), "local.clip": 1.5})
    text = fedbb._util.toml.to_toml(recipe.model_dump(mode="json"))
    assert make_recipe(tomllib.loads(text)) == recipe
