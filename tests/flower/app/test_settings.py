"""Flat settings that come through Flower are checked, and a message says what is wrong."""

from pathlib import Path

import pytest

from fedbb.errors import RecipeError, RunError
from fedbb.flower.app.settings import (
    SiteSettings,
    read_recipe_text,
    read_run_settings,
    read_site_settings,
)

RECIPE = '{"data": {"name": "digits"}, "method": {"name": "fedbb"}}'


def test_a_run_config_is_read_with_what_is_left_out_filled_in():
    settings = read_run_settings({"recipe": RECIPE, "folder": "/runs/a"})
    assert settings.recipe.method.name == "fedbb"
    assert settings.folder == Path("/runs/a")
    assert (settings.resume, settings.score, settings.wait, settings.sites) == (
        False,
        "server",
        300.0,
        0,
    )
    later = read_run_settings(
        {"recipe": RECIPE, "folder": "x", "resume": True, "score": "sites", "wait": 5, "sites": 3}
    )
    assert (later.resume, later.score, later.wait, later.sites) == (True, "sites", 5.0, 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"folder": ""}, "folder is missing"),
        ({"folder": 3}, "folder is 3, not a str"),
        ({"score": "both"}, 'score is \'both\'; it must be "server" or "sites"'),
        ({"wait": -1.0}, "wait and sites must be"),
        ({"wait": float("nan")}, "wait and sites must be"),
        ({"wait": "long"}, "wait is 'long', not a float"),
        ({"resume": "yes"}, "resume is 'yes', not a bool"),
        ({"sites": 2.0}, "sites is 2.0, not a int"),
        ({"sites": True}, "sites is True, not a int"),
    ],
)
def test_a_run_config_that_makes_no_sense_is_refused(changes, words):
    with pytest.raises(RunError, match=words):
        read_run_settings({"recipe": RECIPE, "folder": "x", **changes})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "recipe is missing"),
        ("{", "not valid JSON"),
        ("[1]", "must be a table"),
        ('{"data": {"name": "digits"}}', "method is missing"),
        ('{"data": {"name": "x"}, "method": {"name": "y"}, "sed": 1}', "did you mean seed"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(text, words):
    with pytest.raises(RecipeError, match=words):
        read_recipe_text(text)


def test_a_node_config_is_read_and_what_belongs_to_other_apps_let_be():
    assert read_site_settings({"client": 2, "partition-id": 7}) == SiteSettings(2)
    whole = {"client": 0, "data": "/data/x.npz", "whole": True, "state": "/state"}
    assert read_site_settings(whole) == SiteSettings(
        0, "/data/x.npz", whole=True, state=Path("/state")
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "client is missing"),
        ({"client": -1}, "numbered from 0"),
        ({"client": 1.0}, "client is 1.0"),
        ({"client": True}, "client is True"),
        ({"client": 0, "whole": 1}, "whole is 1"),
    ],
)
def test_a_node_config_that_makes_no_sense_is_refused(config, words):
    with pytest.raises(RunError, match=words):
        read_site_settings(config)
