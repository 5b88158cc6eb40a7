"""A balanced classifier for a trained model: central LDA, any order of clients, run folders."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import fedbb
from fedbb.classifiers.closed_form import ClosedForm
from fedbb.data.registry import load_dataset
from fedbb.data.source import Source
from fedbb.data.transforms import normalize
from fedbb.errors import RecipeError, RunError
from fedbb.models.base import run_network
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.classifier import refit
from fedbb.runs.runner import run
from helpers.small_run import finish, small_recipe


@pytest.fixture(scope="module")
def digits():
    return load_dataset(Source("digits")).subset(300, 0)


@pytest.fixture(scope="module")
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return fedbb.models.build_model("small-cnn", 10, (1, 8, 8))


def embed(model, data, examples=None):
    inputs = torch.from_numpy((examples or data.train).inputs)
    with torch.inference_mode():
        return run_network(model.eval(), normalize(inputs, data.mean, data.std), embed=True)


def test_one_client_gets_the_lda_of_scikit_learn(digits, network):
    fitted = fedbb.fit_classifier(
        network, digits, [np.arange(300)], prior="federation", shrinkage=0.1
    )
    embeddings = embed(network, digits).embedding.double().numpy()
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.1)
    theirs.fit(embeddings, digits.train.labels)
    own = embed(fitted, digits).logits.argmax(dim=1).numpy()
    assert np.array_equal(own, theirs.predict(embeddings))
    assert (own == digits.train.labels).mean() > 0.9
    # The scale of the logits is that of the classifier as trained.
    assert embed(fitted, digits).logits.std() < 10 * embed(network, digits).logits.std()


@pytest.mark.parametrize("rule", ["lda", "ridge", "means"])
def test_the_order_of_clients_changes_no_bit_and_their_partition_hardly_any(digits, network, rule):
    clients = fedbb.partition.dirichlet(digits, clients=6, concentration=0.1, seed=0)
    rows = list(clients.clients)
    one, turned, pooled = (
        fedbb.fit_classifier(network, digits, held, rule=rule).fc.weight
        for held in (clients, rows[::-1], [np.arange(300)])
    )
    assert torch.equal(one, turned)
    torch.testing.assert_close(one, pooled, rtol=1e-4, atol=1e-6)


def test_the_network_stays_as_it_is_and_no_blend_returns_its_own_classifier(digits, network):
    before = network.fc.weight.clone()
    same = fedbb.fit_classifier(network, digits, [np.arange(300)], blend=0.0)
    assert torch.equal(same.fc.weight, before)
    fedbb.fit_classifier(network, digits, [np.arange(300)])
    assert torch.equal(network.fc.weight, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "svm"}, "rule must be one of lda, ridge, means"),
        ({"blend": 1.5}, r'blend must be in \[0, 1\] or "validation", not 1.5'),
        ({"blend": "best"}, r"blend must be in"),
        ({"blend": "validation"}, "needs validation data"),
    ],
)
def test_a_bad_option_is_refused(digits, network, options, message):
    with pytest.raises(RecipeError, match=message):
        fedbb.fit_classifier(network, digits, [np.arange(300)], **options)


def test_the_blend_is_chosen_on_validation_data(digits, network):
    fitted = fedbb.fit_classifier(
        network, digits, [np.arange(300)], blend="validation", validation=digits.test
    )
    whole = fedbb.fit_classifier(network, digits, [np.arange(300)])
    untrained, closed, chosen = (
        np.mean(embed(model, digits, digits.test).logits.argmax(1).numpy() == digits.test.labels)
        for model in (network, whole, fitted)
    )
    assert chosen >= closed - 0.01 > untrained


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("refit")
    skew = {"kind": "label-skew", "clients": 3, "concentration": 0.5, "min_samples": 4}
    whole = {"name": "npz", "path": str(place / "small.npz")}
    data = {**whole, "validation": 0.2, "partition": skew}
    finish(small_recipe(place, data=data, rounds={"number": 1}), place / "run")
    central = small_recipe(place, engine="central", data=whole, rounds={"number": 1})
    finish(central, place / "central")
    return place


@pytest.mark.parametrize("name", ["run", "central"])
def test_a_finished_run_is_scored_with_another_classifier(place, name):
    before = load_checkpoint(place / name / "final.safetensors").state
    files = sorted(path.name for path in (place / name).iterdir())
    found = refit(place / name, ClosedForm("ridge"), out=place / f"{name}.safetensors")
    summary = fedbb.read_run(place / name)
    assert found.trained["test"].macro["accuracy"] == summary.final["accuracy"]
    changed = {k for k, v in found.state.params.items() if not torch.equal(v, before.params[k])}
    assert changed == {"fc.weight", "fc.bias"}
    assert sorted(path.name for path in (place / name).iterdir()) == files
    model = fedbb.load_model(place / f"{name}.safetensors")
    assert torch.equal(model.network.fc.weight, found.state.params["fc.weight"])
    same = refit(place / name, blend=0.0)
    assert same.fitted["test"].macro == same.trained["test"].macro


def test_validation_data_chooses_no_worse_a_blend_than_either_end(place):
    found = refit(place / "run", blend="validation")
    ends = [refit(place / "run", blend=share).fitted["validation"] for share in (0.0, 1.0)]
    best = found.fitted["validation"].macro["balanced_accuracy"]
    assert best >= max(scores.macro["balanced_accuracy"] for scores in ends) - 1e-9
    with pytest.raises(RecipeError, match="needs validation data"):
        refit(place / "central", blend="validation")


def test_unfinished_runs_and_changed_data_are_refused(place, tmp_path):
    records = run(small_recipe(tmp_path), tmp_path / "part")
    next(records)
    records.close()
    with pytest.raises(RunError, match="is unfinished; continue with: fedbb run --resume"):
        refit(tmp_path / "part")
