import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedbb.data.sets.idx import parse_idx
from fedbb.errors import DataError


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


@given(arrays.arrays(np.uint8, arrays.array_shapes(max_dims=4)))
def test_an_array_comes_back_equal(array) -> None:
    assert np.array_equal(parse_idx(idx(array), "x"), array)


@given(st.binary(max_size=40))
def test_any_bytes_are_an_array_or_refused_by_name(content) -> None:
    try:
        assert parse_idx(content, "some.gz").dtype == np.uint8
    except DataError as error:
        assert "some.gz" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no idx file"),
        (bytes([0, 0, 9, 1, 0, 0, 0, 1, 7]), "no idx file of unsigned bytes"),
        (bytes([0, 0, 8, 3, 0, 0, 0, 1]), "ends inside its header"),
        (idx(np.zeros(5, np.uint8))[:-1], r"says \(5,\) but holds 4 bytes"),
        (idx(np.zeros(5, np.uint8)) + b"x", r"says \(5,\) but holds 6 bytes"),
        # 2³² · 2³² would be 0 in 64 bits, just what is left of the file.
        (bytes([0, 0, 8, 4]) + struct.pack(">4I", 2**31, 2**31, 2, 2), "but holds 0 bytes"),
    ],
)
def test_a_damaged_file_is_refused(content, message) -> None:
    with pytest.raises(DataError, match=message):
        parse_idx(content, "x")
