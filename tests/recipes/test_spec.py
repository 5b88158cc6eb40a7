"""Names and identities of recipes stay what they were: run folders are found and resumed by them.

`frozen_names.json` was written before a section of a recipe and its runtime configuration became
one record.
"""

import hashlib
import json
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest

from fedbb.cli.demo import demo_recipes
from fedbb.paper.tables import SCALES, paper_grid, paper_tables
from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import ADDED, EVERY_KEY, Recipe
from helpers.cover import few

FROZEN = json.loads((Path(__file__).parent / "data" / "frozen_names.json").read_text("utf-8"))

WHOLE = """{"name":null,"seed":0,"engine":"auto","privacy":"none","data":{"name":"digits",\
"path":null,"options":{},"train_images":null,"long_tail":null,"validation":0.0,\
"validation_by":null,"partition":{"kind":"label-skew","clients":null,"concentration":null,\
"min_samples":null,"seed":null,"column":null,"path":null}},"model":{"name":"small-cnn",\
"projection":null},"method":{"name":"fedbb","options":{}},"local":{"epochs":1,"batch_size":32,\
"lr":0.01,"momentum":0.9,"nesterov":false,"weight_decay":0.0001,"drop_last":false,"augment":true,\
"threads":1,"channels_last":true,"device":"cpu"},"rounds":{"number":10,"participation":1.0},\
"defense":{"quorum":0.5,"attempts":3,"deadline":600.0,"max_norm":null,"max_weight":1.0,\
"rule":null,"byzantine":0},"evaluation":{"metric":null,"batch_size":256}}"""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def smallest(engine: str) -> Recipe:
    return make_recipe({"engine": engine, "data": {"name": "digits"}, "method": {"name": "fedbb"}})


@pytest.mark.parametrize("engine", ["auto", "inline", "pool"])
def test_a_recipe_of_defaults_is_written_with_the_keys_and_values_of_before(engine):
    assert smallest(engine).decisive.model_dump_json() == WHOLE


def test_every_younger_key_is_left_out_at_its_default_and_written_otherwise():
    recipe = smallest("auto")
    whole = recipe.model_dump(context=EVERY_KEY)
    old = json.loads(WHOLE)
    for name, keys in ADDED.items():
        parts = [part for part in name.split(".") if part]
        now, before = (reduce(getitem, parts, written) for written in (whole, old))
        assert set(now) == {*before, *keys}
    local = replace(recipe.local, optimizer="adam", betas=(0.5, 0.9), schedule="cosine", clip=1.0)
    rounds = replace(recipe.rounds, patience=3)
    changed = recipe.model_copy(update={"local": local, "rounds": rounds})
    written = json.loads(changed.model_dump_json())
    added = {key: value for key, value in written["local"].items() if key not in old["local"]}
    assert list(added) == ["optimizer", "betas", "schedule", "clip"]
    assert written["rounds"] == {**old["rounds"], "patience": 3}
    assert make_recipe(written) == changed


def test_central_training_is_written_with_the_same_keys():
    text = smallest("central").decisive.model_dump_json()
    assert text == WHOLE.replace('"auto"', '"central"')


def test_the_recipes_of_the_demo_keep_their_identity():
    found = {recipe.name: digest(recipe.decisive.model_dump_json()) for recipe in demo_recipes(1)}
    assert found == FROZEN["demo"]


@pytest.mark.parametrize("table", few(paper_tables(), 4))
def test_the_cells_of_the_paper_keep_their_names_and_recipes(table):
    for scale in SCALES:
        cells = paper_grid(table, scale).cells
        found = {
            "cells": len(cells),
            "first": cells[0].name if cells else None,
            "names": digest("\n".join(cell.name for cell in cells)),
            "recipes": digest("\n".join(c.recipe.decisive.model_dump_json() for c in cells)),
        }
        assert found == FROZEN["paper"][f"{table} {scale}"]
