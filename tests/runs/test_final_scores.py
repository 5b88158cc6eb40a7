"""The scores of a run's final and best model: in its folder, its model files and its result."""

import json

import numpy as np
import pytest
import torch
from scipy.special import expit

import fedbb
from fedbb.data.dataset import Dataset, Examples
from fedbb.errors import RecipeError, RunError
from fedbb.evaluation.operating_point import choose_thresholds
from fedbb.inference.prediction import Samples, predict
from fedbb.records import Task
from fedbb.report.score_tables import site_table
from fedbb.runs.final_scores import ModelScores, read_scores
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from helpers.small_run import finish, small_recipe
from helpers.toy import toy_dataset

LOCAL = fedbb.LocalConfig(batch_size=8, lr=0.05)
QUICK = {"bootstrap": 50, "min_cases": 1}


def net():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))


def toy(task=Task.MULTICLASS, **options):
    data = toy_dataset(task)
    clients = fedbb.partition.iid(data, clients=3)
    given = {"model": net, "rounds": 2, "local": LOCAL, **QUICK, **options}
    return fedbb.simulate(data, clients, **given)


def test_the_folder_holds_all_scores_of_the_final_and_the_best_model(tmp_path):
    recipe = small_recipe(tmp_path, evaluation=QUICK)
    summary, _ = finish(recipe, tmp_path / "run")
    found = read_scores(RunFolder(tmp_path / "run"))
    for name in ("final", "best"):
        assert found[name].round == summary[name]["round"]
        scores, macro = found[name].test, summary[name]["scores"]["test"]["macro"]
        assert {key: scores.macro[key] for key in macro} == pytest.approx(macro, nan_ok=True)
        assert scores.samples == scores.confusion.sum() == 20
        assert scores.intervals.replicates == 50
        assert found[name].operating_point is None
        assert found[name].sites == ()
    result = fedbb.read_run(tmp_path / "run")
    assert result.scores.to_json() == found["final"].to_json()
    assert result.best_scores.round == summary["best"]["round"]


def test_scores_are_the_same_bits_in_memory_in_a_pool_and_after_a_resume(tmp_path):
    recipe = small_recipe(tmp_path, evaluation=QUICK)
    own = recipe.data.model_copy(update={"own_test": 0.25, "validation": 0.2})
    recipe = recipe.model_copy(update={"data": own})
    finish(recipe, tmp_path / "inline")
    expected = (tmp_path / "inline" / "scores.json").read_bytes()
    pooled = recipe.model_copy(update={"engine": "pool"})
    finish(pooled, tmp_path / "pool", workers=2)
    assert (tmp_path / "pool" / "scores.json").read_bytes() == expected
    rounds = run(recipe, tmp_path / "resumed")
    next(rounds)
    next(rounds)
    rounds.close()
    finish(recipe, tmp_path / "resumed", resume=True)
    assert (tmp_path / "resumed" / "scores.json").read_bytes() == expected
    in_memory = fedbb.run(recipe)
    assert in_memory.scores.to_json() == json.loads(expected)["final"]
    assert in_memory.best_scores.to_json() == json.loads(expected)["best"]


def test_the_settings_of_scores_change_no_model_and_no_name_of_old_recipes(tmp_path):
    plain, changed = small_recipe(tmp_path), small_recipe(tmp_path, evaluation=QUICK)
    assert "bootstrap" not in plain.model_dump(mode="json")["evaluation"]
    assert "own_test" not in plain.model_dump(mode="json")["data"]
    found = [finish(recipe, tmp_path / str(n))[0] for n, recipe in enumerate((plain, changed))]
    assert found[0] == found[1]


@pytest.mark.parametrize("rule", ["youden", "f1", 0.9])
def test_thresholds_are_chosen_on_validation_data_and_kept_in_the_model_file(tmp_path, rule):
    result = toy(Task.MULTILABEL, validation=0.3, threshold=rule, out=tmp_path / "run")
    point = result.scores.operating_point
    model = fedbb.load_model(tmp_path / "run", model=net)
    assert model.info.thresholds == point.thresholds
    held = toy(Task.MULTILABEL, validation=0.3).scores.test
    assert result.scores.test.to_json() == held.to_json()  # plain scores stay what they are
    data = toy_dataset(Task.MULTILABEL)
    chances = model.predict(data.test.inputs)
    expected = chances > np.array(point.thresholds)
    np.testing.assert_array_equal(model.decide(chances), expected)
    found = predict(model, Samples(("",) * 30, data.test.inputs, data.test.labels))
    assert found.predicted[0] == tuple(np.array(data.classes)[expected[0]])
    assert found.report.to_json()["confusion"] == point.scores.to_json()["confusion"]
    best = fedbb.load_model(tmp_path / "run", model=net, best=True)
    assert best.info.thresholds == result.best_scores.operating_point.thresholds
    assert result.predictor.info.thresholds == point.thresholds


def test_the_threshold_of_two_classes_is_that_of_the_second():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4)).astype(np.float32)
    y = (x[:, 0] + rng.normal(size=200) > 1.2).astype(np.int64)
    data = Dataset("two", Task.MULTICLASS, ("no", "yes"), Examples(x, y), Examples(x[:50], y[:50]))
    result = fedbb.simulate(
        data,
        fedbb.partition.iid(data, clients=2),
        model=lambda: torch.nn.Linear(4, 2),
        rounds=1,
        validation=0.3,
        threshold=0.95,
        **QUICK,
    )
    low, high = result.scores.operating_point.thresholds
    assert low == pytest.approx(1 - high)
    decided, plain = result.scores.decided, result.scores.test
    assert decided.per_class["recall"][1] >= plain.per_class["recall"][1]
    model = result.predictor
    chances = model.predict(x[:50])
    np.testing.assert_array_equal(model.decide(chances)[:, 1], chances[:, 1] > high)


def test_a_threshold_without_validation_data_or_for_many_classes_is_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"evaluation\.threshold needs validation data"):
        toy(Task.MULTILABEL, threshold="f1", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(RecipeError, match="multi-label data and for two classes; of 3 classes"):
        toy(threshold="f1", validation=0.2)


@pytest.mark.parametrize("task", list(Task))
def test_the_adjusted_model_adds_the_log_of_the_clients_class_shares(tmp_path, task):
    result = toy(task, logit_adjustment=0.5, out=tmp_path / "run")
    data = toy_dataset(task)
    counts = fedbb.count_labels(data.train.labels, task, 3)
    shares = counts.positive / (counts.negative if task is Task.MULTILABEL else 60)
    point = result.scores.operating_point
    shift = np.array(point.logit_shift)
    expected = -0.5 * np.log(shares)
    if task is Task.MULTICLASS:  # up to a constant, which a softmax ignores
        shift, expected = shift - shift[0], expected - expected[0]
    np.testing.assert_allclose(shift, expected)
    model, plain = fedbb.load_model(tmp_path / "run", model=net), result.model
    with torch.inference_mode():
        raw = plain(torch.tensor(data.test.inputs)).double().numpy()
    np.testing.assert_allclose(
        model.predict_logits(data.test.inputs), raw + point.logit_shift, atol=1e-5
    )
    assert model(torch.tensor(data.test.inputs)).shape == (30, 3)
    assert result.scores.decided is point.scores
    assert result.scores.test.to_json() == toy(task).scores.test.to_json()


def test_adjustment_evens_out_the_recalls_under_a_long_tail():
    data = toy_dataset(train=400, test=300).long_tail(0.05, seed=0)
    clients = fedbb.partition.iid(data, clients=3)
    local = fedbb.LocalConfig(batch_size=8, lr=0.05, augment=False)
    result = fedbb.simulate(
        data, clients, model=net, rounds=3, local=local, logit_adjustment=True, **QUICK
    )
    plain, adjusted = result.scores.test, result.scores.operating_point.scores
    assert adjusted.macro["balanced_accuracy"] > plain.macro["balanced_accuracy"] + 0.02
    assert adjusted.per_class["recall"].min() > plain.per_class["recall"].min()


@pytest.mark.parametrize("workers", [0, 2])
def test_private_runs_know_sums_over_sites_and_no_site(tmp_path, workers):
    pytest.importorskip("cryptography")
    theirs = toy(own_test=0.25).scores.site_spreads
    result = toy(own_test=0.25, privacy="masked", workers=workers, out=tmp_path / "run")
    scores = result.scores
    assert scores.sites == ()
    assert [one.metric for one in scores.site_spreads] == [one.metric for one in theirs]
    for ours, known in zip(scores.site_spreads, theirs, strict=True):
        assert (ours.sites, ours.worst, ours.worst_client) == (known.sites, None, None)
        assert ours.mean == pytest.approx(known.mean, abs=1e-3)
        assert ours.std == pytest.approx(known.std, abs=1e-3)
    assert read_scores(RunFolder(tmp_path / "run"))["final"].site_sums == scores.site_sums
    seen = RunFolder(tmp_path / "run").read_json("audit.json")["scores"]
    assert seen[-1]["clients"] == [0, 1, 2]
    assert seen[-1]["samples"].keys() == {"own_test"}


@pytest.mark.parametrize("task", list(Task))
def test_sites_are_scored_on_what_they_keep_of_their_own_data(task):
    result = toy(task, own_test=0.25)
    sites = result.scores.sites
    assert [site.client for site in sites] == [0, 1, 2]
    assert [site.samples for site in sites] == pytest.approx([5, 5, 5], abs=1)
    trained = sum(client["steps"] for client in result.history[0].clients)
    assert trained == 6  # 15 samples each in batches of 8
    assert all(0 <= site.macro["accuracy"] <= 1 for site in sites)


def test_sites_are_scored_at_the_operating_point_too(tmp_path):
    options = {"own_test": 0.25, "validation": 0.3, "threshold": 0.9, "logit_adjustment": True}
    result = toy(Task.MULTILABEL, **options, out=tmp_path / "run")
    scores = result.scores
    point = scores.operating_point
    assert [site.client for site in point.sites] == [0, 1, 2]
    assert scores.decided_sites == point.sites
    for plain, decided in zip(scores.sites, point.sites, strict=True):
        assert plain.samples == decided.samples
        assert plain.macro["auroc"] == pytest.approx(decided.macro["auroc"], nan_ok=True)
    assert [site.macro["f1"] for site in scores.sites] != [site.macro["f1"] for site in point.sites]
    kept = read_scores(RunFolder(tmp_path / "run"))["final"]
    assert kept.to_json() == scores.to_json()
    assert site_table(kept).caption.endswith("on its own test data, at the operating point")


def test_scores_of_older_versions_are_read(tmp_path):
    scores = toy(Task.MULTILABEL, validation=0.3, threshold="f1").scores
    plain = scores.to_json()
    for new in ("classes", "sites"):
        del plain["operating_point"][new]
    assert ModelScores.from_json(plain).to_json() == scores.to_json()


@pytest.mark.parametrize("cut", ["final", "test", "macro"])
def test_a_damaged_file_of_scores_is_named(tmp_path, cut):
    finish(small_recipe(tmp_path, evaluation=QUICK), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    plain = folder.read_json("scores.json")
    place = {"final": plain, "test": plain["final"], "macro": plain["final"]["test"]}[cut]
    del place[cut]
    folder.write_json("scores.json", plain)
    with pytest.raises(RunError, match=r"scores\.json is damaged"):
        read_scores(folder)


def test_chosen_thresholds_maximize_their_rule_by_brute_force():
    rng = np.random.default_rng(1)
    for _ in range(20):
        truth = rng.random((30, 1)) < 0.4
        chance = np.round(expit(rng.normal(size=(30, 1)) + truth), 1)
        grid = np.unique(np.concatenate([[-0.1], chance.ravel(), chance.ravel() - 0.05]))

        def figures(threshold, truth=truth, chance=chance):
            guess = chance > threshold
            hits = (guess & truth).sum()
            recall = hits / truth.sum()
            refused = (~guess & ~truth).sum() / (~truth).sum()
            return recall + refused - 1, 2 * hits / (truth.sum() + guess.sum()), recall, refused

        every = np.array([figures(threshold) for threshold in grid])
        for place, rule in enumerate(("youden", "f1")):
            (chosen,) = choose_thresholds(truth, chance, rule)
            assert figures(chosen)[place] == pytest.approx(every[:, place].max())
        (chosen,) = choose_thresholds(truth, chance, 0.8)
        _, _, recall, refused = figures(chosen)
        assert recall >= 0.8
        assert refused == pytest.approx(every[every[:, 2] >= 0.8, 3].max())


def test_thresholds_of_a_class_of_one_kind_are_one_half():
    labels = [[1, 0, np.nan], [1, 0, np.nan]]
    np.testing.assert_array_equal(choose_thresholds(labels, np.full((2, 3), 0.7)), [0.5, 0.5, 0.5])
    assert choose_thresholds([0, 1], [0.0, 0.0], 1.0)[1] < 0
    with pytest.raises(ValueError, match="sensitivity to reach is 2"):
        choose_thresholds([0, 1], [0.2, 0.3], 2)
    with pytest.raises(ValueError, match="for two classes"):
        choose_thresholds([0, 1, 2], np.eye(3))
