import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.recipes.cell_name import cell_name, plain
from fedbb.recipes.spec import Recipe

SAFE = re.compile(r"[a-z0-9.+_-]+")


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("FedAvg", "fedavg"),
        ("MOON+FedBB", "moon+fedbb"),
        ("δ = 0.1", "delta-0.1"),
        ("Café", "cafe"),
        ("../../etc", "etc"),
        ("<script>", "script"),
        ("β＝½", "beta-1-2"),
        ("漢字", ""),
    ],
)
def test_a_label_becomes_a_plain_word(label, expected):
    assert plain(label) == expected


@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1), max_size=3), st.integers(0, 9))
def test_any_labels_make_a_name_that_is_safe_as_a_folder_and_allowed_in_a_recipe(at, seed):
    name = cell_name(at, {"seed": seed})
    assert SAFE.fullmatch(name)
    assert name[0] not in ".-"
    values = {"name": name, "data": {"name": "digits"}, "method": {"name": "fedavg"}}
    assert Recipe.model_validate(values).name == name


def test_labels_that_look_alike_in_plain_letters_stay_apart():
    assert cell_name({"a": "漢"}, {"seed": 0}) != cell_name({"a": "字"}, {"seed": 0})


def test_other_settings_make_another_name_and_another_engine_does_not():
    at, values = {"method": "FedBB"}, {"seed": 0, "local": {"lr": 0.1}}
    name = cell_name(at, values)
    assert name.startswith("fedbb_seed0_")
    assert cell_name(at, {**values, "local": {"lr": 0.2}}) != name
    assert cell_name(at, {**values, "engine": "inline"}) == name
    assert cell_name(at, {**values, "engine": "central"}) != name
