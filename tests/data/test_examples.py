"""Long tails and label noise of examples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.data.dataset import Examples
from fedbb.data.examples import long_tail, noisy_labels, tail_sizes
from fedbb.errors import DataError
from fedbb.rng import stream
from fedbb.runs.federation import prepare
from helpers.small_run import finish, small_recipe
from helpers.toy import toy_dataset


def numbered(labels: list[int]) -> Examples:
    """Examples known again by their image."""
    images = np.arange(len(labels), dtype=np.float32).reshape(-1, 1, 1, 1)
    return Examples(images, np.array(labels, dtype=np.int64))


@pytest.mark.parametrize(
    ("classes", "largest", "factor", "total"),
    [
        (10, 5000, 0.1, 20_431),
        (10, 5000, 0.02, 13_996),
        (10, 5000, 0.01, 12_406),
        (100, 500, 0.1, 19_573),
        (100, 500, 0.02, 12_608),
        (100, 500, 0.01, 10_847),
    ],
)
def test_long_tailed_cifar_has_the_sizes_of_the_public_codes(
    classes, largest, factor, total
) -> None:
    sizes = tail_sizes(np.full(classes, largest), factor)
    assert sizes.sum() == total
    assert sizes[0] == largest
    assert sizes[-1] == int(largest * factor)


def test_the_tail_of_cifar10_class_by_class() -> None:
    expected = [5000, 3871, 2997, 2320, 1796, 1391, 1077, 834, 645, 500]
    assert tail_sizes(np.full(10, 5000), 0.1).tolist() == expected


def test_a_class_cannot_have_more_than_there_is() -> None:
    # The largest has 100, so with factor 1/4 the profile is 100, 50, 25; the second has only 30.
    assert tail_sizes(np.array([100, 30, 60]), 0.25).tolist() == [100, 30, 25]


@given(
    labels=st.lists(st.integers(0, 4), min_size=1, max_size=200),
    factor=st.floats(1e-9, 1.0),
    seed=st.integers(0, 5),
)
def test_what_stays_is_some_of_what_was_there_in_its_old_order(labels, factor, seed) -> None:
    examples = numbered(labels)
    tail = long_tail(examples, 5, factor, stream(seed, "tail"))
    places = tail.inputs.ravel().astype(int)
    assert (np.diff(places) > 0).all()
    assert np.array_equal(tail.labels, examples.labels[places])
    before, after = (np.bincount(part.labels, minlength=5) for part in (examples, tail))
    assert np.array_equal(after, tail_sizes(before, factor))
    assert ((after > 0) == (before > 0)).all()


def test_factor_one_keeps_everything() -> None:
    examples = numbered([0, 1, 1, 2, 2, 2])
    assert np.array_equal(long_tail(examples, 3, 1.0, stream(0, "tail")).inputs, examples.inputs)


def test_the_stream_decides_who_stays() -> None:
    examples = numbered([0, 1] * 100)
    first, again, other = (
        long_tail(examples, 2, 0.1, stream(seed, "tail")).inputs.tolist() for seed in (0, 0, 1)
    )
    assert first == again != other


def test_one_class_stays_whole() -> None:
    assert len(long_tail(numbered([0] * 9), 1, 0.1, stream(0, "tail"))) == 9


@pytest.mark.parametrize("factor", [0.0, -0.1, 1.1, float("nan")])
def test_a_factor_outside_its_range_is_refused(factor) -> None:
    with pytest.raises(DataError, match="above 0 and at most 1"):
        long_tail(numbered([0, 1]), 2, factor, stream(0, "tail"))


def test_multi_label_data_is_refused() -> None:
    examples = Examples(np.zeros((2, 1, 1, 1), np.uint8), np.zeros((2, 3), np.float32))
    with pytest.raises(DataError, match="one class per image"):
        long_tail(examples, 3, 0.5, stream(0, "tail"))


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
