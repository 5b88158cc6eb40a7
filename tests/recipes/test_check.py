"""What is refused before anything is loaded: parts that do not suit each other, weak defenses."""

import re

import pytest

from fedbb.aggregation.robust import TrimmedMean, Uniform, coordinate_median
from fedbb.errors import RecipeError
from fedbb.methods import build_method
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import make_recipe
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


def defended(defense, clients=9, method="cbr", **changes):
    partition = {"kind": "even", "clients": clients}
    return make_recipe(
        {
            "data": {"name": "digits", "partition": partition},
            "method": {"name": method},
            "defense": defense,
            **changes,
        }
    )


def rule(name, byzantine=2, **more):
    return {"rule": name, "byzantine": byzantine, **more}


@pytest.mark.parametrize(
    ("defense", "changes", "words"),
    [
        ({"byzantine": 1}, {}, "defense.byzantine needs a defense.rule"),
        ({"rule": "clip"}, {}, 'defense.rule = "clip" needs defense.max_norm'),
        (rule("clip", 1, max_norm=2.0), {}, "bounds every client alike"),
        ({"rule": "krum"}, {}, 'defense.rule = "krum" needs defense.byzantine'),
        ({"rule": "multi-krum"}, {}, 'defense.rule = "multi-krum" needs defense.byzantine'),
        ({"rule": "median"}, {}, 'defense.rule = "median" needs defense.byzantine'),
        ({"rule": "trimmed-mean"}, {}, 'defense.rule = "trimmed-mean" needs defense.byzantine'),
        (rule("median"), {"privacy": "masked"}, 'and privacy = "masked" exclude each other'),
        (
            rule("krum"),
            {"privacy": "bfv"},
            "every client's model, and secure aggregation reveals only their sum",
        ),
        (
            rule("krum"),
            {"clients": 6},
            "needs 7 clients in a round to tolerate 2 malicious ones, and 6 train",
        ),
        (
            rule("multi-krum", 4),
            {},
            "needs 11 clients in a round to tolerate 4 malicious ones, and 9 train",
        ),
        (
            rule("median", 5),
            {},
            "needs 11 clients in a round to tolerate 5 malicious ones, and 9 train",
        ),
        (rule("trimmed-mean"), {"clients": 4}, "needs 5 clients in a round"),
        (
            rule("krum"),
            {"clients": 20, "rounds": {"participation": 0.3}},
            "needs 7 clients in a round to tolerate 2 malicious ones, and 6 train",
        ),
        (rule("median"), {"method": "fednova"}, "FedNova merges them in another way"),
        (rule("trimmed-mean"), {"method": "fednova+fedbb"}, '"clip", "krum" and "multi-krum"'),
    ],
)
def test_a_defense_that_cannot_hold_is_refused_before_anything_is_loaded(defense, changes, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        check_recipe(defended(defense, **changes))


def test_central_training_has_nobody_to_defend_against():
    whole = make_recipe(
        {
            "engine": "central",
            "data": {"name": "digits"},
            "method": {"name": "fedavg"},
            "defense": rule("median", 1),
        }
    )
    with pytest.raises(RecipeError, match="has no place in engine"):
        check_recipe(whole)


@pytest.mark.parametrize("name", ["krum", "multi-krum"])
@pytest.mark.parametrize("method", ["fednova", "fedbb", "moon+fedbb"])
def test_krum_leaves_the_method_as_it_is(name, method):
    assert check_recipe(defended(rule(name), clients=7, method=method)) == build_method(method, {})


def test_clipping_leaves_the_method_as_it_is():
    defense = {"rule": "clip", "max_norm": 2.0}
    assert check_recipe(defended(defense, clients=1, method="fednova")) == build_method(
        "fednova", {}
    )


def test_a_trimmed_mean_replaces_the_merge_and_keeps_the_weights():
    method = check_recipe(defended(rule("trimmed-mean"), clients=5))
    plain = build_method("cbr", {})
    assert method.merge == TrimmedMean(2)
    assert (method.name, method.weighting, method.loss) == ("CBR", plain.weighting, plain.loss)


def test_a_median_replaces_the_merge_and_asks_for_no_weights():
    method = check_recipe(defended(rule("median"), clients=5))
    assert method.merge is coordinate_median
    assert method.weighting == Uniform()
