import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedbb.data.statistics import channel_statistics


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
