"""Finished runs that several tests of trained models share."""

import pytest

from fedbb.recipes.reader import make_recipe
from fedbb.runs.runner import run


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Return a function that runs a small recipe once and returns its folder."""
    place, folders = tmp_path_factory.mktemp("runs"), {}

    def make(data):
        if data not in folders:
            recipe = {
                "data": {"name": data, "partition": {"clients": 3, "concentration": 0.5}},
                "method": {"name": "fedbb"},
                "local": {"lr": 0.05},
                "rounds": {"number": 2},
            }
            folders[data] = place / data
            for _ in run(make_recipe(recipe, "test"), folders[data], workers=1):
                pass
        return folders[data]

    return make


@pytest.fixture(scope="session")
def folder(finished):
    """Return the folder of a multi-class run on digits."""
    return finished("digits")


@pytest.fixture(scope="session")
def mosaics(finished):
    """Return the folder of a multi-label run on digit mosaics."""
    return finished("digit-mosaic")
