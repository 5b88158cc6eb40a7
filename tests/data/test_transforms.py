import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedbb.data.transforms import (
    Augmentation,
    Draws,
    apply,
    as_images,
    as_pixels,
    channel_statistics,
    draw,
    normalize,
)
from fedbb.errors import DataError
from fedbb.rng import stream

AUGMENTATIONS = st.builds(Augmentation, crop=st.integers(0, 4), flip=st.booleans())


def slow_apply(images: torch.Tensor, draws: Draws) -> torch.Tensor:
    """One image and one pixel after another."""
    result = torch.zeros_like(images)
    number, _, height, width = images.shape
    for image in range(number):
        for row in range(height):
            for column in range(width):
                y = int(draws.top[image]) + row - draws.augmentation.crop
                shown = width - 1 - column if draws.mirrored[image] else column
                x = int(draws.left[image]) + shown - draws.augmentation.crop
                if draws.augmentation.padding == "reflect":
                    y, x = mirror(y, height), mirror(x, width)
                if 0 <= y < height and 0 <= x < width:
                    result[image, :, row, column] = images[image, :, y, x]
    return result


def mirror(spot: int, size: int) -> int:
    if spot < 0:
        return -spot
    return spot if spot < size else 2 * (size - 1) - spot


def pictures(shape: tuple[int, ...], dtype=torch.uint8) -> torch.Tensor:
    numbers = torch.arange(1, 1 + int(np.prod(shape))) % 251 + 1
    return numbers.reshape(shape).to(dtype)


@given(
    augmentation=AUGMENTATIONS,
    shape=st.tuples(
        st.integers(1, 4), st.sampled_from([1, 3]), st.integers(1, 7), st.integers(1, 7)
    ),
    dtype=st.sampled_from([torch.uint8, torch.float32]),
    seed=st.integers(0, 99),
)
def test_a_batch_is_changed_as_pixel_by_pixel(augmentation, shape, dtype, seed) -> None:
    images = pictures(shape, dtype)
    draws = draw(augmentation, shape[0], stream(seed, "augment"))
    changed = apply(images, draws)
    assert changed.dtype == dtype
    assert torch.equal(changed, slow_apply(images, draws))


@given(
    augmentation=st.builds(
        Augmentation, crop=st.integers(0, 4), flip=st.booleans(), padding=st.just("reflect")
    ),
    shape=st.tuples(
        st.integers(1, 4), st.sampled_from([1, 3]), st.integers(5, 7), st.integers(5, 7)
    ),
    dtype=st.sampled_from([torch.uint8, torch.float32]),
    seed=st.integers(0, 99),
)
def test_reflected_padding_is_that_of_torch(augmentation, shape, dtype, seed) -> None:
    images = pictures(shape, dtype)
    draws = draw(augmentation, shape[0], stream(seed, "augment"))
    changed = apply(images, draws)
    assert changed.dtype == dtype
    assert torch.equal(changed, slow_apply(images, draws))
    crop, (_, _, height, width) = augmentation.crop, shape
    padded = F.pad(images.float(), (crop,) * 4, mode="reflect")
    for image, (top, left, mirrored) in enumerate(
        zip(draws.top, draws.left, draws.mirrored, strict=True)
    ):
        cut = padded[image, :, top : top + height, left : left + width]
        assert torch.equal(changed[image].float(), cut.flip(2) if mirrored else cut)


def test_both_paddings_share_their_draws() -> None:
    zeros, reflect = (
        draw(Augmentation(crop=2, flip=True, padding=padding), 50, stream(3, "augment"))
        for padding in ("zeros", "reflect")
    )
    for name in ("top", "left", "mirrored", "seeds"):
        assert np.array_equal(getattr(zeros, name), getattr(reflect, name))


@given(augmentation=AUGMENTATIONS, order=st.permutations(range(9)), size=st.integers(1, 9))
def test_changes_depend_neither_on_batch_size_nor_on_order(augmentation, order, size) -> None:
    images = pictures((9, 1, 5, 6))
    draws = draw(augmentation, 9, stream(0, "augment"))
    whole = apply(images, draws)
    for start in range(0, 9, size):
        batch = np.array(order[start : start + size])
        assert torch.equal(apply(images[batch], draws.take(batch)), whole[batch])


def test_nothing_to_do_leaves_images_as_they_are() -> None:
    images = pictures((3, 3, 4, 4))
    assert torch.equal(apply(images, draw(Augmentation(), 3, stream(0, "x"))), images)


def test_a_mirrored_image_by_hand() -> None:
    images = torch.tensor([[[[1, 2, 3]]], [[[4, 5, 6]]]])
    draws = Draws(
        Augmentation(flip=True),
        np.array([0, 0]),
        np.array([0, 0]),
        np.array([True, False]),
        np.array([1, 2]),
    )
    assert apply(images, draws).tolist() == [[[[3, 2, 1]]], [[[4, 5, 6]]]]


def test_a_shifted_image_by_hand() -> None:
    # Padded by one the row is 0 1 2 3 0; a crop from the left edge shows 0 1 2.
    draws = Draws(
        Augmentation(crop=1), np.array([1]), np.array([0]), np.array([False]), np.array([1])
    )
    assert apply(torch.tensor([[[[1, 2, 3]]]]), draws).tolist() == [[[[0, 1, 2]]]]


def test_every_offset_and_both_sides_are_drawn_alike() -> None:
    draws = draw(Augmentation(crop=4, flip=True), 90_000, stream(0, "augment"))
    for offsets in (draws.top, draws.left):
        counts = np.bincount(offsets, minlength=9)
        assert len(counts) == 9
        assert np.abs(counts - 10_000).max() < 500
    assert abs(draws.mirrored.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(draws.top, draws.left)[0, 1]) < 0.02


def test_without_flip_the_crops_are_the_same() -> None:
    plain, flipped = (
        draw(Augmentation(crop=2, flip=flip), 50, stream(3, "augment")) for flip in (False, True)
    )
    assert np.array_equal(plain.top, flipped.top)
    assert np.array_equal(plain.left, flipped.left)
    assert not plain.mirrored.any()


@pytest.mark.parametrize("as_tensor", [False, True])
def test_bytes_are_brought_to_one_before_they_are_normalized(as_tensor) -> None:
    # (51/255 − 0.2) / 0.5 = 0 and (255/255 − 0.2) / 0.5 = 1.6; channel 1: (0 − 1) / 0.25 = −4.
    images = np.array([[[[51, 255]], [[0, 255]]]], dtype=np.uint8)
    given_images = torch.from_numpy(images) if as_tensor else images
    result = normalize(given_images, (0.2, 1.0), (0.5, 0.25))
    assert result.dtype == torch.float32
    assert torch.allclose(result, torch.tensor([[[[0.0, 1.6]], [[-4.0, 0.0]]]]), atol=1e-6)


def test_fractions_are_normalized_as_they_are_and_not_in_place() -> None:
    images = torch.tensor([[[[0.2, 1.0]]]])
    before = images.clone()
    result = normalize(images, (0.2,), (0.5,))
    assert torch.allclose(result, torch.tensor([[[[0.0, 1.6]]]]))
    assert torch.equal(images, before)


def test_a_read_only_memory_map_can_be_normalized(tmp_path) -> None:
    np.save(tmp_path / "images.npy", np.full((2, 1, 2, 2), 255, dtype=np.uint8))
    images = np.load(tmp_path / "images.npy", mmap_mode="r")
    assert normalize(images, (0.0,), (1.0,)).tolist() == [[[[1.0, 1.0], [1.0, 1.0]]]] * 2


def test_two_pixels_by_hand() -> None:
    # Channel 0 holds 0 and 255, so 0 and 1: mean 1/2, spread 1/2. Channel 1 is 51/255 = 0.2 twice.
    images = np.array([[[[0]], [[51]]], [[[255]], [[51]]]], dtype=np.uint8)
    mean, std = channel_statistics(images)
    assert mean == pytest.approx((0.5, 0.2))
    assert std == pytest.approx((0.5, 1.0))


@given(
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 700), st.sampled_from([1, 3]), st.just(2), st.just(3)),
        elements=st.floats(-100, 100, width=32),
        fill=st.floats(-100, 100, width=32),
    )
)
def test_pieces_give_what_the_whole_gives(images) -> None:
    mean, std = channel_statistics(images)
    whole = images.astype(np.float64)
    assert mean == pytest.approx(whole.mean(axis=(0, 2, 3)), abs=1e-9)
    spread = whole.std(axis=(0, 2, 3))
    assert std == pytest.approx(np.where(spread < 1e-12, 1, spread), abs=1e-9)


def test_a_large_offset_does_not_swallow_the_spread() -> None:
    images = np.tile(np.array([1e6, 1e6 + 1], dtype=np.float32), 800).reshape(800, 1, 1, 2)
    assert channel_statistics(images)[1] == pytest.approx((0.5,), rel=1e-9)


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
    with pytest.raises(DataError, match="allowed:"):
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


def shift(inputs: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
    """Add to each input a number that its seed tells."""
    added = (seeds % 7).to(inputs.dtype)
    return inputs + added.view(-1, *(1,) * (inputs.ndim - 1))


def test_a_function_of_the_user_sees_one_seed_per_sample() -> None:
    augmentation = Augmentation(function=shift)
    draws = draw(augmentation, 20, stream(0, "augment"))
    inputs = torch.zeros(20, 3)
    whole = apply(inputs, draws)
    assert len(set(whole[:, 0].tolist())) > 3
    for batch in (np.array([3, 1]), np.arange(5, 20)):
        assert torch.equal(apply(inputs[batch], draws.take(batch)), whole[batch])
    moved = draw(Augmentation(crop=1, flip=True), 20, stream(0, "augment"))
    both = draw(Augmentation(crop=1, flip=True, function=shift), 20, stream(0, "augment"))
    assert np.array_equal(moved.top, both.top)
    assert np.array_equal(moved.mirrored, both.mirrored)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda inputs, seeds: inputs[:1], r"of shape \(1, 3\) for inputs"),
        (lambda inputs, seeds: inputs.double(), r"returns torch\.float64"),
        (lambda inputs, seeds: None, "returns a NoneType"),
    ],
)
def test_a_function_that_changes_shape_or_type_is_refused(function, message) -> None:
    draws = draw(Augmentation(function=function), 4, stream(0, "augment"))
    with pytest.raises(DataError, match=message):
        apply(torch.zeros(4, 3), draws)
