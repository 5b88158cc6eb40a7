import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import RefusedError
from fedbb.secagg.primitives.fixed_point import (
    CHUNK,
    add_masks,
    from_limbs,
    from_ring,
    to_limbs,
    to_ring,
)


def there_and_back(values: np.ndarray, *, whole: bool) -> np.ndarray:
    ring = to_ring(values, cohort=3, whole=whole, scale_bits=40)
    return from_ring(ring, whole=whole, scale_bits=40)


@given(st.lists(st.floats(-(2.0**20), 2.0**20), min_size=1))
def test_a_number_comes_back_within_half_a_place(values: list[float]) -> None:
    array = np.array(values)
    assert (np.abs(there_and_back(array, whole=False) - array) <= 2.0**-41).all()


@given(st.lists(st.integers(-(2**60), 2**60), min_size=1))
def test_a_whole_number_comes_back_as_it_was(values: list[int]) -> None:
    assert there_and_back(np.array(values), whole=True).tolist() == values


def test_halves_are_rounded_to_even() -> None:
    """2^-41 lies midway between 0 and 2^-40."""
    values = np.array([2.0**-41, 3 * 2.0**-41, -(2.0**-41), -0.0, 5e-324])
    assert there_and_back(values, whole=False).tolist() == [0.0, 2.0**-39, 0.0, 0.0, 0.0]


def test_the_bound_itself_passes_and_the_next_number_does_not() -> None:
    limit = 2.0**22 / 4
    for sign in (1, -1):
        to_ring(np.array([sign * limit]), cohort=4, whole=False, scale_bits=40)
        beyond = np.array([sign * np.nextafter(limit, np.inf)])
        with pytest.raises(RefusedError, match=r"larger than 2\^22/4"):
            to_ring(beyond, cohort=4, whole=False, scale_bits=40)


def test_all_clients_at_the_bound_do_not_overflow() -> None:
    for cohort in (3, 7, 50):
        ring = to_ring(np.array([2.0**22 / cohort]), cohort=cohort, whole=False, scale_bits=40)
        total = from_ring(ring * np.uint64(cohort), whole=False, scale_bits=40)
        assert total[0] == pytest.approx(2.0**22)


@pytest.mark.parametrize("value", [2**62 // 3 + 1, -(2**62 // 3) - 1, 2**63 - 1, -(2**63)])
def test_a_whole_number_out_of_range_is_refused(value: int) -> None:
    with pytest.raises(RefusedError, match=r"larger than 2\^62/3"):
        to_ring(np.array([value]), cohort=3, whole=True, scale_bits=40)


@pytest.mark.parametrize("kind", [np.float64, np.uint64, np.int32, bool])
def test_whole_numbers_are_of_64_bits_with_sign(kind: type) -> None:
    with pytest.raises(RefusedError, match="flat and of int64"):
        to_ring(np.ones(2, dtype=kind), cohort=3, whole=True, scale_bits=40)


def test_the_clients_own_array_is_left_as_it_is() -> None:
    for whole, values in ((True, np.arange(5)), (False, np.arange(5.0))):
        ring = to_ring(values, cohort=3, whole=whole, scale_bits=40)
        add_masks(ring, [bytes(32)], [])
        assert values.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("length", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_a_mask_added_and_taken_away_leaves_nothing(length: int) -> None:
    keys = [bytes([number] * 32) for number in range(4)]
    vector = np.arange(length, dtype=np.uint64)
    add_masks(vector, keys[:2], keys[2:])
    assert not np.array_equal(vector, np.arange(length))
    add_masks(vector, keys[2:], keys[:2])
    assert np.array_equal(vector, np.arange(length))


def test_a_long_masks_beginning_is_the_short_mask() -> None:
    long, short = np.zeros(2 * CHUNK + 3, np.uint64), np.zeros(CHUNK + 1, np.uint64)
    for vector in (long, short):
        add_masks(vector, [bytes(32)], [])
    assert np.array_equal(long[: len(short)], short)


@given(st.lists(st.lists(st.integers(0, 2**64 - 1), min_size=3, max_size=3), min_size=1))
def test_sums_of_limbs_are_sums_in_the_ring(rows: list[list[int]]) -> None:
    vectors = [np.array(row, dtype=np.uint64) for row in rows]
    sums = np.sum([to_limbs(vector) for vector in vectors], axis=0)
    expected = [sum(column) % 2**64 for column in zip(*rows, strict=True)]
    assert from_limbs(sums).tolist() == expected
