"""A run seen from its clients: the same bits by any engine, and what cannot be seen is refused."""

import numpy as np
import pytest

from fedbb.errors import RunError
from fedbb.evaluation.metrics import Scorer, own_accuracy
from fedbb.methods import fedavg
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.federation import prepare
from fedbb.runs.folder import RunFolder
from fedbb.runs.personal import personalize
from fedbb.runs.runtime import local_config_of, network_of
from fedbb.training.config import TrainJob
from fedbb.training.local import train_client
from helpers.small_run import finish, small_recipe

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
    with pytest.raises(RunError, match="is no run folder"):
        personalize(tmp_path)
    finish(recipe, tmp_path / "half")
    (tmp_path / "half" / "final.safetensors").unlink()
    with pytest.raises(RunError, match="is unfinished; go on with: fedbb run --resume"):
        personalize(tmp_path / "half")
    with pytest.raises(RunError, match="holds no finished run"):
        personalize(place / "run", ceiling=tmp_path / "nothing")


def test_multi_label_runs_are_refused(tmp_path):
    data = {"name": "digit-mosaic", "train_images": 60, "partition": {"kind": "even", "clients": 3}}
    finish(small_recipe(tmp_path, data=data, rounds={"number": 1}), tmp_path / "run")
    with pytest.raises(RunError, match="is multi-label"):
        personalize(tmp_path / "run")
