"""A run seen from its clients: the same bits by any engine, and what cannot be seen is refused."""

import json

import numpy as np
import pytest
import torch

from fedbb import partition, simulate
from fedbb.data.transforms import normalize
from fedbb.errors import RecipeError, RunError
from fedbb.evaluation.metrics import Scorer, own_accuracy, score_logits
from fedbb.methods import fedavg
from fedbb.models.base import run_network
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.federation import prepare
from fedbb.runs.final_scores import read_scores
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import read_run_recipe
from fedbb.runs.personal import personalize
from fedbb.runs.python_recipe import divide_data
from fedbb.runs.runtime import local_config_of, make_network, network_of
from fedbb.state import restore
from fedbb.training.config import LocalConfig, TrainJob
from fedbb.training.local import train_client
from helpers.commands import fedbb
from helpers.small_run import finish, small_recipe
from helpers.toy import toy_dataset

SKEW = {"kind": "label-skew", "clients": 3, "concentration": 0.5, "min_samples": 2}


def skewed(folder, **changes):
    data = {"name": "npz", "path": str(folder / "small.npz"), "partition": SKEW}
    return small_recipe(folder, data=data, **changes)


def central(folder):
    data = {"name": "npz", "path": str(folder / "small.npz")}
    return small_recipe(folder, data=data, engine="central")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    place = tmp_path_factory.mktemp("personal")
    recipe = skewed(place)
    finish(recipe, place / "run")
    finish(central(place), place / "central")
    return recipe, place


def test_the_shared_model_is_scored_by_each_clients_mixture(finished):
    recipe, place = finished
    served = personalize(place / "run")
    final = RunFolder(place / "run").read_json("summary.json")["final"]["scores"]["test"]
    recall = np.array(final["per_class"]["recall"])
    shares = prepare(recipe).clients
    for row, share in zip(served, shares, strict=True):
        cases = share.counts.positive
        assert (row.samples, row.classes) == (len(share), np.count_nonzero(cases))
        assert row.shared == pytest.approx(own_accuracy(recall, cases), abs=1e-12)
        assert row.alone is None
        assert row.ceiling is None


def test_adapted_is_one_plain_epoch_from_the_final_model(finished):
    recipe, place = finished
    federation = prepare(recipe)
    final = load_checkpoint(place / "run" / "final.safetensors").state
    model = network_of(recipe, fedavg(), federation.dataset)
    job = TrainJob(1, recipe.rounds.number + 1, recipe.seed, final)
    update, _ = train_client(model, federation.clients[1], job, fedavg(), local_config_of(recipe))
    scores = Scorer(model, federation.dataset, federation.scored)(update.state)["test"]
    cases = federation.clients[1].counts.positive
    expected = own_accuracy(scores.per_class["recall"], cases)
    assert personalize(place / "run")[1].adapted == expected


def test_any_engine_and_number_of_workers_gives_the_same(finished, tmp_path):
    _, place = finished
    inline = personalize(place / "run", epochs=2, alone=True, ceiling=place / "central")
    finish(skewed(tmp_path, engine="pool"), tmp_path / "pool", workers=2)
    heard = []
    pooled = personalize(
        tmp_path / "pool",
        epochs=2,
        alone=True,
        ceiling=place / "central",
        workers=2,
        progress=lambda done, whole: heard.append((done, whole)),
    )
    assert pooled == inline
    assert heard == [(done, 6) for done in range(1, 7)]
    assert any(row.alone != row.adapted for row in inline)


def test_the_other_run_is_scored_by_each_clients_mixture_too(finished):
    recipe, place = finished
    other = RunFolder(place / "central").read_json("summary.json")["final"]["scores"]["test"]
    recall = np.array(other["per_class"]["recall"])
    served = personalize(place / "run", ceiling=place / "central")
    cases = [client.counts.positive for client in prepare(recipe).clients]
    assert [row.ceiling for row in served] == [own_accuracy(recall, own) for own in cases]


def test_a_private_run_and_one_without_clients_are_refused(finished, tmp_path):
    _, place = finished
    with pytest.raises(RunError, match="has no clients"):
        personalize(place / "central")
    finish(small_recipe(tmp_path, privacy="masked"), tmp_path / "run")
    with pytest.raises(RunError, match="nobody may see"):
        personalize(tmp_path / "run")


def test_an_unfinished_run_and_no_run_are_refused(finished, tmp_path):
    recipe, place = finished
    with pytest.raises(RunError, match="is not a run folder"):
        personalize(tmp_path)
    finish(recipe, tmp_path / "half")
    (tmp_path / "half" / "final.safetensors").unlink()
    with pytest.raises(RunError, match="is unfinished; continue with: fedbb run --resume"):
        personalize(tmp_path / "half")
    with pytest.raises(RunError, match="holds no finished run"):
        personalize(place / "run", ceiling=tmp_path / "nothing")


def test_multi_label_runs_are_refused(tmp_path):
    data = {"name": "digit-mosaic", "train_images": 60, "partition": {"kind": "even", "clients": 3}}
    finish(small_recipe(tmp_path, data=data, rounds={"number": 1}), tmp_path / "run")
    with pytest.raises(RunError, match="is multi-label"):
        personalize(tmp_path / "run")


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Return a folder with a run of a network and a loss that the recipe names by import path."""
    place = tmp_path_factory.mktemp("own")
    recipe = skewed(
        place,
        model={"name": "helpers.own_networks:Regularized", "freeze": ["conv.*"]},
        method={"name": "fedbb", "loss": "helpers.own_networks:inverse"},
        rounds={"number": 2},
    )
    finish(recipe, place / "run", allow_code=True)
    return recipe, place / "run"


@pytest.mark.slow
def test_a_network_of_the_users_own_is_personalized_by_any_engine(own, tmp_path):
    recipe, path = own
    inline = personalize(path, alone=True, allow_code=True)
    pool = recipe.model_copy(update={"engine": "pool"})
    finish(pool, tmp_path / "pool", workers=2, allow_code=True)
    assert personalize(tmp_path / "pool", alone=True, workers=2, allow_code=True) == inline
    # One plain epoch by hand, with dropout and frozen layers, from the run's final model.
    federation = prepare(recipe)
    final = load_checkpoint(path / "final.safetensors").state
    model = network_of(recipe, fedavg(), federation.dataset, allow_code=True)
    job = TrainJob(1, 3, recipe.seed, final)
    update, _ = train_client(model, federation.clients[1], job, fedavg(), local_config_of(recipe))
    assert update.state.params["conv.weight"].equal(final.params["conv.weight"])
    scores = Scorer(model, federation.dataset, federation.scored)(update.state)["test"]
    cases = federation.clients[1].counts.positive
    assert inline[1].adapted == own_accuracy(scores.per_class["recall"], cases)


def test_code_of_the_recipe_runs_only_if_it_is_allowed(own):
    _, path = own
    with pytest.raises(RecipeError, match=r"own_networks:Regularized.*--allow-code"):
        personalize(path)
    with pytest.raises(RecipeError, match="own_networks:Regularized"):
        personalize(path, allow_code=["helpers.own_networks:Tied"])
    # The loss plays no part, so it need not be allowed.
    assert personalize(path, allow_code=["helpers.own_networks:Regularized"])


def test_the_command_takes_a_network_of_the_users_own(own, monkeypatch):
    _, path = own
    answer = fedbb("personalize", str(path), "--allow-code", "--json", monkeypatch=monkeypatch)
    expected = [row.as_json() for row in personalize(path, allow_code=True)]
    assert json.loads(answer.out)["clients"] == expected


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    """Return the parts of a run from Python, with a network of the script's own, and its folder."""
    path = tmp_path_factory.mktemp("scripted") / "run"
    data = toy_dataset()
    parts = data, partition.iid(data, clients=2), own_network
    simulate(
        *parts[:2],
        model=own_network,
        method="moon+fedbb",
        local=LocalConfig(batch_size=8, lr=0.05),
        rounds=2,
        validation=0.1,
        own_test=0.3,
        out=path,
    )
    return parts, path


def own_network():
    hidden = (torch.nn.Flatten(), torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Dropout(0.2))
    return torch.nn.Sequential(*hidden, torch.nn.Linear(8, 3))


def test_a_run_from_python_is_personalized_on_the_clients_own_tests(scripted):
    parts, path = scripted
    served = personalize(path, *parts, alone=True, ceiling=path)
    sites = {site.client: site for site in read_scores(RunFolder(path))["final"].sites}
    for row in served:
        assert row.tested == sites[row.client].samples
        assert row.shared == row.ceiling == sites[row.client].macro["accuracy"]
    # One plain epoch by hand from the final model.
    recipe = read_run_recipe(RunFolder(path))
    federation = divide_data(*parts[:2], recipe.data, recipe.seed)
    final = load_checkpoint(path / "final.safetensors").state
    model = make_network(own_network, fedavg(), federation.dataset, recipe.local, seed=0)
    job = TrainJob(1, 3, 0, final)
    update, _ = train_client(model, federation.clients[1], job, fedavg(), local_config_of(recipe))
    own = federation.own_test.examples.take(np.flatnonzero(federation.own_test.owners == 1))
    scores = Scorer(model, federation.dataset, {"own": own})(update.state)["own"]
    assert served[1].adapted == scores.macro["accuracy"]


def test_a_run_from_python_needs_its_parts_and_no_others(scripted, finished):
    parts, path = scripted
    data, clients, model = parts
    with pytest.raises(RunError, match=r"was made from Python.*fedbb\.personalize\(path, data"):
        personalize(path)
    with pytest.raises(RunError, match="not the partition of the run"):
        personalize(path, data, partition.iid(data, clients=2, seed=5), model)
    with pytest.raises(RunError, match="not the network, or its first weights, of the run"):
        personalize(path, data, clients, "linear")
    with pytest.raises(RunError, match="is a run of a recipe"):
        personalize(finished[1] / "run", data)


@pytest.mark.parametrize("engine", ["inline", "pool"])
def test_own_tests_of_clients_take_the_place_of_the_label_mix(finished, tmp_path, engine):
    recipe = skewed(tmp_path, engine=engine, rounds={"number": 1})
    data = recipe.data.model_copy(update={"own_test": 0.3})
    workers = 2 if engine == "pool" else None
    finish(recipe.model_copy(update={"data": data}), tmp_path / "run", workers=workers)
    sites = {s.client: s for s in read_scores(RunFolder(tmp_path / "run"))["final"].sites}
    for row in personalize(tmp_path / "run", workers=workers):
        known = row.client in sites
        assert row.tested == (sites[row.client].samples if known else 0)
        assert row.shared == sites[row.client].macro["accuracy"] if known else np.isnan(row.shared)
    with pytest.raises(RunError, match="has another network"):
        personalize(tmp_path / "run", ceiling=other_network(tmp_path), workers=workers)


def other_network(folder):
    finish(skewed(folder, model={"name": "linear"}, rounds={"number": 1}), folder / "other")
    return folder / "other"


def test_fed_rod_scores_shared_and_personal_predictions(tmp_path):
    """A client's own head helps on its own mixture; its logits are those of the penalty."""
    recipe = skewed(tmp_path, method={"name": "fed-rod"}, rounds={"number": 4})
    finish(recipe, tmp_path / "run")
    served = personalize(tmp_path / "run")
    assert sum(row.personal for row in served) >= sum(row.shared for row in served)
    folder, federation = RunFolder(tmp_path / "run"), prepare(recipe)
    kept = folder.client_states.load(1, 4).tensors
    model = network_of(recipe, fedavg(), federation.dataset).eval()
    restore(model, load_checkpoint(folder.file("final.safetensors")).state)
    images = normalize(
        torch.from_numpy(federation.dataset.test.inputs),
        federation.dataset.mean,
        federation.dataset.std,
    )
    with torch.inference_mode():
        outputs = run_network(model, images, embed=True)
    head = torch.nn.functional.linear(
        outputs.embedding, kept["personal-head.weight"], kept["personal-head.bias"]
    )
    logits = (outputs.logits + head).double().numpy()
    recall = score_logits(logits, federation.dataset.test.labels, federation.dataset.task)
    expected = own_accuracy(recall.per_class["recall"], federation.clients[1].counts.positive)
    assert served[1].personal == pytest.approx(expected)
