import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.data.layout import as_images, as_pixels
from fedbb.errors import DataError


@given(
    number=st.integers(1, 3),
    channels=st.sampled_from([1, 3]),
    height=st.integers(4, 6),
    width=st.integers(4, 6),
)
def test_either_order_of_channels_gives_the_same_images(number, channels, height, width) -> None:
    size = number * channels * height * width
    images = np.arange(size, dtype=np.uint8).reshape(number, channels, height, width)
    for layout in ("auto", "channels-first"):
        assert np.array_equal(as_images(images, layout, "x"), images)
    last = images.transpose(0, 2, 3, 1)
    for layout in ("auto", "channels-last"):
        assert np.array_equal(as_images(last, layout, "x"), images)
        assert as_images(last, layout, "x").flags.c_contiguous


def test_grey_images_get_a_channel() -> None:
    assert as_images(np.zeros((5, 8, 9), dtype=np.uint8), "auto", "x").shape == (5, 1, 8, 9)


@pytest.mark.parametrize("shape", [(2, 3, 3, 3), (2, 1, 5, 3), (2, 4, 5, 6)])
def test_an_order_that_cannot_be_told_must_be_said(shape) -> None:
    images = np.zeros(shape, dtype=np.uint8)
    with pytest.raises(DataError, match=r"images\.npz has shape .* set the layout"):
        as_images(images, "auto", "images.npz")
    assert as_images(images, "channels-first", "x").shape == shape


@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (1, 2, 3, 4, 5)])
def test_other_shapes_are_refused(shape) -> None:
    with pytest.raises(DataError, match="allowed are"):
        as_images(np.zeros(shape), "auto", "x")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.array([0, 255], dtype=np.int64), np.array([0, 255], dtype=np.uint8)),
        (np.array([0, 255], dtype=np.uint16), np.array([0, 255], dtype=np.uint8)),
        (np.array([True, False]), np.array([255, 0], dtype=np.uint8)),
        (np.array([0.5, -2.0]), np.array([0.5, -2.0], dtype=np.float32)),
        (np.array([0.5], dtype=np.float16), np.array([0.5], dtype=np.float32)),
        (np.array([1e300]), np.array([np.inf], dtype=np.float32)),
        (np.array([1, 2], dtype=">f4"), np.array([1, 2], dtype=np.float32)),
    ],
)
def test_numbers_become_uint8_or_float32(given, expected) -> None:
    pixels = as_pixels(given, "x")
    assert pixels.dtype == expected.dtype
    assert np.array_equal(pixels, expected)


@pytest.mark.parametrize("array", [np.array([256]), np.array([-1]), np.array([65535], np.uint16)])
def test_whole_numbers_beyond_a_byte_are_refused(array) -> None:
    with pytest.raises(DataError, match=r"the picture holds .* 0 to 255"):
        as_pixels(array, "the picture")


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1j]), np.array([None])])
def test_what_is_no_number_is_refused(array) -> None:
    with pytest.raises(DataError, match="must be numbers"):
        as_pixels(array, "x")
