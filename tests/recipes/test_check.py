import re

import pytest

from fedbb.errors import RecipeError
from fedbb.runs.runner import run
from helpers.small_run import small_recipe

MOSAIC = {"name": "digit-mosaic", "partition": {"kind": "even", "clients": 3}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine": "central"}, "data.partition has no place"),
        ({"method": {"name": "moon"}, "model": {"projection": False}}, "does not suit MOON"),
        ({"method": {"name": "moon+fedavg"}}, "after it are"),
        ({"method": {"name": "moon+fedbb", "options": {"mu": 1.0}}}, "options.mu is unknown"),
        ({"method": {"name": "moon+fedbb", "options": {"moon": 1.0}}}, "must be a table"),
        ({"method": {"name": "fedlc"}, "data": MOSAIC}, "FedLC is not defined for multilabel data"),
        ({"method": {"name": "fedprox", "options": {"mu": -1.0}}}, "mu must be"),
        ({"model": {"name": "resnet"}}, "model.name 'resnet' is unknown"),
    ],
)
def test_parts_that_do_not_suit_each_other_are_refused_at_once(tmp_path, changes, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        next(run(small_recipe(tmp_path, **changes), tmp_path / "run"))
    assert not (tmp_path / "run").exists()
