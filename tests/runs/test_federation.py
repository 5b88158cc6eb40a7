import numpy as np
import pytest

from fedbb.aggregation.merging import BySamples, ClientBalanced
from fedbb.data.registry import load_dataset
from fedbb.errors import DataError
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import make_recipe
from fedbb.runs.federation import SHOWN, describe, prepare
from fedbb.simulation.inline import make_client_infos
from helpers.small_run import small_recipe, small_values, write_npz


def prepared(folder, *, seed=0, clients=3, **data):
    values = small_values(write_npz(folder / "small.npz"), seed=seed)
    values["data"] |= data
    values["data"]["partition"] |= {"clients": clients}
    return prepare(make_recipe(values))


def test_fewer_images_are_drawn_by_the_seed_and_test_data_stays(tmp_path):
    whole, some, again, other = (
        prepared(tmp_path, **options)
        for options in (
            {},
            {"train_images": 25},
            {"train_images": 25},
            {"train_images": 25, "seed": 1},
        )
    )
    images = some.dataset.train.inputs
    assert len(images) == 25
    assert np.array_equal(images, again.dataset.train.inputs)
    assert not np.array_equal(images, other.dataset.train.inputs)
    known = {image.tobytes() for image in whole.dataset.train.inputs}
    assert {image.tobytes() for image in images} <= known
    assert np.array_equal(some.scored["test"].inputs, whole.scored["test"].inputs)
    assert sum(some.partition.sizes) == 25


def test_images_are_drawn_from_what_validation_leaves(tmp_path):
    federation = prepared(tmp_path, train_images=45, validation=0.25)
    assert len(federation.dataset.train) == 45
    with pytest.raises(DataError, match=r"has 45 examples.*data\.train_images.* 46"):
        prepared(tmp_path, train_images=46, validation=0.25)


def test_the_methods_of_a_data_set_draw_what_a_recipe_draws(tmp_path):
    recipe = prepared(tmp_path, seed=3, train_images=50, long_tail=0.2).dataset.train
    data = load_dataset("npz", path=tmp_path / "small.npz")
    own = data.subset(50, seed=3).long_tail(0.2, seed=3).train
    assert len(own) < 50
    assert np.array_equal(recipe.inputs, own.inputs)
    assert np.array_equal(recipe.labels, own.labels)
    other = data.long_tail(0.2, seed=3).subset(len(own), seed=3).train
    assert not np.array_equal(own.inputs, other.inputs)


def test_of_very_many_clients_the_first_are_told_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr("fedbb.runs.federation.SHOWN", 2)
    recipe = small_recipe(tmp_path)
    described = describe(prepare(recipe), check_recipe(recipe))
    weights = [client.loss_weight for client in described.clients]
    assert [weight is None for weight in weights] == [False, False, True]
    assert "loss weights and notes are of the first 2 of 3 clients" in described.notes
    assert SHOWN >= 1000


def test_the_information_about_clients_is_made_once_for_each_weighting(tmp_path):
    federation = prepared(tmp_path)
    plain, balanced = BySamples(), ClientBalanced()
    infos = federation.client_infos(plain)
    assert infos == make_client_infos(federation.clients, plain)
    assert federation.client_infos(balanced) == make_client_infos(federation.clients, balanced)
    assert infos != federation.client_infos(balanced)
    assert federation.client_infos(plain) is infos
