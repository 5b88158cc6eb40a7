import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.data.dataset import Examples
from fedbb.data.longtail import long_tail, tail_sizes
from fedbb.errors import DataError
from fedbb.rng import stream


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
