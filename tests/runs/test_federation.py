import numpy as np
import pytest

from fedbb.errors import RecipeError
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import make_recipe
from fedbb.runs.federation import SHOWN, describe, prepare
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
    with pytest.raises(RecipeError, match=r"data\.train_images = 46 is refused: there are 45"):
        prepared(tmp_path, train_images=46, validation=0.25)


def test_of_very_many_clients_the_first_are_told_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr("fedbb.runs.federation.SHOWN", 2)
    recipe = small_recipe(tmp_path)
    described = describe(prepare(recipe), check_recipe(recipe))
    weights = [client.loss_weight for client in described.clients]
    assert [weight is None for weight in weights] == [False, False, True]
    assert "loss weights and notes are of the first 2 of 3 clients" in described.notes
    assert SHOWN >= 1000
