"""Label noise: rates and targets of wrong labels, and a recipe whose test data stays clean."""

import numpy as np
import pytest

from fedbb.data.label_noise import noisy_labels
from fedbb.errors import DataError
from fedbb.rng import stream
from fedbb.runs.federation import prepare
from helpers.small_run import finish, small_recipe
from helpers.toy import toy_dataset

LABELS = np.arange(30_000) % 4


def drawn(rate, kind, labels=LABELS, classes=4):
    return noisy_labels(labels, classes, rate, kind, stream(0, "label noise"))


@pytest.mark.parametrize("kind", ["symmetric", "pair"])
@pytest.mark.parametrize("rate", [0.1, 0.4])
def test_as_many_labels_are_wrong_as_asked_for(kind, rate):
    wrong = drawn(rate, kind) != LABELS
    assert wrong.mean() == pytest.approx(rate, abs=0.01)


def test_symmetric_noise_reaches_all_other_classes_alike_and_pairs_only_the_next():
    for label in range(4):
        targets = drawn(0.5, "symmetric")[label::4]
        shares = np.bincount(targets, minlength=4) / len(targets)
        assert shares == pytest.approx(np.where(np.arange(4) == label, 0.5, 1 / 6), abs=0.02)
        assert set(drawn(0.5, "pair")[label::4]) == {label, (label + 1) % 4}


def test_no_rate_leaves_all_labels():
    assert np.array_equal(drawn(0.0, "symmetric"), LABELS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, "pair"), "from 0 to below 1"),
        ((0.1, "other"), "symmetric or pair, not 'other'"),
        ((0.1, "pair", np.zeros((3, 2))), "are multi-label"),
        ((0.1, "pair", np.zeros(3, int), 1), "at least two classes"),
    ],
)
def test_a_bad_value_is_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        drawn(*arguments)


def test_a_recipe_makes_only_training_labels_wrong_after_the_partition(tmp_path):
    noise = {"label_noise": 0.4, "label_noise_kind": "pair", "validation": 0.2, "own_test": 0.2}
    clean, noisy = (
        prepare(small_recipe(tmp_path, data={**small_recipe(tmp_path).data.model_dump(), **data}))
        for data in ({"validation": 0.2, "own_test": 0.2}, noise)
    )
    before, after = clean.dataset.train.labels, noisy.dataset.train.labels
    assert 0.2 < (before != after).mean() < 0.6
    assert set((after - before)[after != before] % 3) == {1}
    for one, two in zip(clean.partition.clients, noisy.partition.clients, strict=True):
        assert np.array_equal(one, two)
    for name, examples in clean.scored.items():
        assert np.array_equal(examples.labels, noisy.scored[name].labels)
    assert np.array_equal(clean.own_test.examples.labels, noisy.own_test.examples.labels)
    assert noisy.clients[0].counts.positive.tolist() == [
        (after[noisy.partition.clients[0]] == label).sum() for label in range(3)
    ]


def test_a_run_with_noise_has_one_result_on_any_engine(tmp_path):
    data = small_recipe(tmp_path).data.model_dump() | {"label_noise": 0.3}
    recipe = small_recipe(tmp_path, data=data, rounds={"number": 2}, method={"name": "symmetric"})
    whole, _ = finish(recipe, tmp_path / "inline")
    pooled = recipe.model_copy(update={"engine": "pool"})
    assert finish(pooled, tmp_path / "pool", workers=2)[0]["sha256"] == whole["sha256"]
    plain = small_recipe(tmp_path, rounds={"number": 2}, method={"name": "symmetric"})
    assert finish(plain, tmp_path / "plain")[0]["sha256"] != whole["sha256"]


def test_in_python_a_data_set_has_noisy_training_labels():
    data = toy_dataset()
    noisy = data.with_label_noise(0.5, seed=3)
    assert (noisy.train.labels != data.train.labels).any()
    assert np.array_equal(noisy.test.labels, data.test.labels)
    assert noisy.train.inputs is data.train.inputs
