"""A packed block gives back what was packed, and any other block is only ever refused."""

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedbb.state import TYPES, pack_arrays, unpack_arrays


def block(entries, values=b""):
    header = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return len(header).to_bytes(8, "little") + header + values


EXAMPLE = pack_arrays({"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(7)})


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.sampled_from(sorted(TYPES)).flatmap(
            lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, min_side=0))
        ),
        max_size=4,
    )
)
def test_any_arrays_come_back_to_the_bit_and_in_order(given_arrays):
    back = unpack_arrays(pack_arrays(given_arrays))
    assert list(back) == list(given_arrays)
    for name, array in given_arrays.items():
        assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape)
        assert back[name].tobytes() == array.tobytes()
        assert back[name].flags.writeable
        assert back[name].flags.aligned


def test_strides_do_not_matter():
    array = np.arange(12.0).reshape(3, 4)
    back = unpack_arrays(pack_arrays({"f": np.asfortranarray(array), "r": array[::-1, ::2]}))
    np.testing.assert_array_equal(back["f"], array)
    np.testing.assert_array_equal(back["r"], array[::-1, ::2])


@pytest.mark.parametrize("array", [np.array([None]), np.array(["x"]), np.ones(1, ">f4")])
def test_a_type_that_cannot_be_read_is_not_packed(array):
    with pytest.raises(ValueError, match="which cannot be sent"):
        pack_arrays({"x": array})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "ends within its header"),
        (b"\xff" * 8, "ends within its header"),
        (block(b"[")[:-1], "ends within its header"),
        (block(b"{"), "Expecting property name"),
        (block(b"[" * 100_000), "nested too deep"),
        (block({}), "not a list"),
        (block([["x", "<f4"]]), "not name, type and shape"),
        (block([["x", "|O", [1]]], bytes(8)), "not a type of values"),
        (block([["x", ">f4", [1]]], bytes(4)), "not a type of values"),
        (block([["x", "<V4", [1]]], bytes(4)), "not a type of values"),
        (block([[1, "<f4", [1]]], bytes(4)), "a name is missing"),
        (block([["x", ["<f4"], [1]]], bytes(4)), "not a type of values"),
        (block([["x", "<f4", 1]], bytes(4)), "no shape"),
        (block([["x", "<f4", [1] * 33]], bytes(4)), "no shape"),
        (block([["x", "<f4", [-1, -1]]], bytes(4)), "a length that is not possible"),
        (block([["x", "<f4", [True]]], bytes(4)), "a length that is not possible"),
        (block([["x", "<f4", [1.0]]], bytes(4)), "a length that is not possible"),
        (block([["x", "<f4", [0, 2**60]]]), "a length that is not possible"),
        (block([["x", "<f4", [0, 2**47, 2**47]]]), "dimension|too big"),
        (block([["x", "<f4", [2**40]]], bytes(4)), "ends within 'x'"),
        (block([["x", "|u1", [1]], ["x", "|u1", [1]]], bytes(2)), "holds 'x' twice"),
        (EXAMPLE[:-1], "ends within 'b'"),
        (EXAMPLE + b"\0", "longer than its header says"),
    ],
    ids=range(23),
)
def test_a_block_that_differs_from_its_header_is_refused(data, words):
    with pytest.raises(ValueError, match=words):
        unpack_arrays(data)


@given(st.integers(0, len(EXAMPLE) - 1), st.integers(0, 255))
def test_any_byte_of_a_block_changed_is_read_or_refused(place, value):
    data = bytearray(EXAMPLE)
    data[place] = value
    with contextlib.suppress(ValueError):
        assert sum(array.nbytes for array in unpack_arrays(bytes(data)).values()) <= len(data)
