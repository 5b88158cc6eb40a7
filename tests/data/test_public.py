"""Public inputs: drawn by the seed, of the form of the data, without labels."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.data.public import public_digest, take_public, with_public
from fedbb.errors import DataError, RecipeError
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import make_recipe
from fedbb.runs.federation import prepare
from helpers.toy import toy_dataset

DATA = toy_dataset()
NUMBERED = replace(
    DATA,
    train=replace(
        DATA.train,
        inputs=np.broadcast_to(
            np.arange(len(DATA.train), dtype=np.float32).reshape(-1, 1, 1, 1),
            DATA.train.inputs.shape,
        ).copy(),
    ),
)


@given(st.integers(2, 50), st.integers(0, 5))
def test_taken_inputs_are_no_longer_trained_on_and_none_is_lost(number, seed):
    found = take_public(NUMBERED, number, seed)
    public, rest = (part[:, 0, 0, 0].tolist() for part in (found.public, found.train.inputs))
    assert len(public) == number
    assert sorted([*public, *rest]) == list(range(len(DATA.train)))
    assert public == sorted(public)
    again = take_public(NUMBERED, number, seed)
    assert public_digest(found.public) == public_digest(again.public)


def test_inputs_of_another_data_set_are_drawn_and_its_labels_left():
    found = with_public(DATA, NUMBERED, 7, seed=1)
    assert found.public.shape == (7, *DATA.train.inputs.shape[1:])
    assert len(found.train) == len(DATA.train)
    assert found.notes[-1] == f"7 public inputs of {NUMBERED.name}"
    assert len(with_public(DATA, NUMBERED).public) == len(NUMBERED.train)


@pytest.mark.parametrize(
    ("inputs", "number", "reason"),
    [
        (np.zeros((5, 3), dtype=np.float32), None, "one network takes both"),
        (np.zeros((5, 1, 4, 4), dtype=np.uint8), None, "array has uint8 inputs"),
        (np.full((5, 1, 4, 4), np.nan, dtype=np.float32), None, "not finite"),
        (np.zeros((1, 1, 4, 4), dtype=np.float32), None, "at least 2 are needed"),
        (np.zeros((5, 1, 4, 4), dtype=np.float32), 6, "6 inputs are asked for, array has 5"),
    ],
)
def test_inputs_that_cannot_be_used_are_refused(inputs, number, reason):
    with pytest.raises(DataError, match=reason):
        with_public(DATA, inputs, number)


def test_some_examples_must_stay():
    with pytest.raises(DataError, match="of which some must stay"):
        take_public(DATA, len(DATA.train))


def recipe(public, **method):
    data = {"name": "digits", "partition": {"kind": "even", "clients": 3}, "public": public}
    return make_recipe({"data": data, "method": {"name": "feddf", **method}})


def test_a_recipe_takes_its_public_inputs_before_anything_else_is_drawn():
    found = prepare(recipe({"images": 100})).dataset
    assert len(found.public) == 100
    plain = prepare(recipe(None)).dataset
    assert len(found.train) == len(plain.train) - 100
    named = prepare(recipe({"name": "digits", "images": 50})).dataset
    assert len(named.train) == len(plain.train)
    assert len(named.public) == 50


@pytest.mark.parametrize(
    ("public", "reason"),
    [
        (None, "FedDF learns from public inputs: the section data.public"),
        ({}, "data.public needs the name of a data set, or images"),
        ({"images": 5, "path": "x"}, "need data.public.name"),
        ({"name": "digitz"}, "digitz"),
    ],
)
def test_a_recipe_that_cannot_be_run_is_refused(public, reason):
    with pytest.raises((RecipeError, DataError), match=reason):
        check_recipe(recipe(public))


def test_a_recipe_without_public_inputs_is_written_as_before():
    assert "public" not in recipe(None).model_dump()["data"]
    assert recipe({"images": 5}).model_dump()["data"]["public"]["images"] == 5
