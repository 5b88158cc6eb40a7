"""Named streams: equal names give equal numbers, other names other ones, anywhere and always."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbb.rng import derive, stream, torch_stream

quick = settings(deadline=None, max_examples=25)
seeds = st.integers(0, 2**32)
names = st.lists(st.one_of(st.text("abc", max_size=3), st.integers(-5, 5)), max_size=4).map(tuple)


def drawn_by_torch(*name: str | int) -> list[float]:
    with torch_stream(0, *name):
        return torch.rand(3).tolist()


@quick
@given(seeds, names)
def test_equal_names_give_equal_numbers(seed, name):
    assert stream(seed, *name).random(3).tolist() == stream(seed, *name).random(3).tolist()


@quick
@given(seeds, names, seeds, names)
def test_other_seeds_or_names_give_other_numbers(seed, name, other_seed, other_name):
    same = (seed, name) == (other_seed, other_name)
    assert (derive(seed, *name) == derive(other_seed, *other_name)) == same


@pytest.mark.parametrize(
    ("first", "second"),
    [((1, 23), (12, 3)), (("1",), (1,)), (("a", "b"), ("ab",)), ((), ("",)), ((1, 2), (2, 1))],
)
def test_names_that_look_alike_are_told_apart(first, second):
    assert derive(0, *first) != derive(0, *second)


def test_whole_numbers_of_numpy_name_the_same_stream():
    assert derive(np.int64(3), "order", np.int32(7)) == derive(3, "order", 7)


@pytest.mark.parametrize("part", [1.5, None, 2.0])
def test_what_is_neither_word_nor_whole_number_is_refused(part):
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        derive(0, part)


def test_numbers_stay_the_same_for_ever():
    """A change here would silently change every run that was ever recorded."""
    assert derive(0, "order", 1, 2) == 139124168247080070840358649489523894172
    assert stream(0, "order", 1, 2).permutation(8).tolist() == [7, 2, 6, 4, 1, 3, 0, 5]
    assert drawn_by_torch("torch", 1, 2) == pytest.approx([0.649477, 0.791714, 0.138954], abs=1e-6)


def test_torch_draws_from_the_named_stream_alone():
    assert drawn_by_torch("a") == drawn_by_torch("a") != drawn_by_torch("b")


def fail_while_drawing() -> None:
    with torch_stream(0, "a"):
        torch.rand(5)
        raise KeyError


def test_the_global_generator_is_put_back_also_after_an_error():
    before = torch.get_rng_state()
    with torch_stream(0, "a"):
        torch.rand(5)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(KeyError):
        fail_while_drawing()
    assert torch.equal(torch.get_rng_state(), before)


def test_streams_nest_without_disturbing_each_other():
    expected = drawn_by_torch("outer")
    with torch_stream(0, "outer"):
        first = torch.rand(1).tolist()
        inner = drawn_by_torch("inner")
        rest = torch.rand(2).tolist()
    assert first + rest == expected
    assert inner == drawn_by_torch("inner")


def test_numpys_global_generator_is_left_alone():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    stream(0, "a").random(5)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
