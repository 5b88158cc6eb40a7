import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.data.dataset import Examples
from fedbb.data.splits import hold_out, split_by_share, split_by_values
from fedbb.errors import DataError
from fedbb.rng import stream


def numbered(samples: int, groups: list[int] | None = None) -> Examples:
    """Examples that are known again by their label."""
    columns = {} if groups is None else {"patient": np.array(groups).astype(str)}
    return Examples(np.zeros((samples, 1, 1, 1), np.uint8), np.arange(samples), columns)


@given(samples=st.integers(2, 200), share=st.floats(0.001, 0.999), seed=st.integers(0, 9))
def test_both_sides_together_are_everything_once_and_in_order(samples, share, seed) -> None:
    kept, held = hold_out(numbered(samples), share, stream(seed, "held"))
    assert sorted([*kept.labels, *held.labels]) == list(range(samples))
    assert (np.diff(kept.labels) > 0).all()
    assert (np.diff(held.labels) > 0).all()
    assert len(held) == pytest.approx(min(max(share * samples, 1), samples - 1), abs=0.5)


@given(
    groups=st.lists(st.integers(0, 8), min_size=2, max_size=60).filter(
        lambda all_: len(set(all_)) > 1
    ),
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 9),
)
def test_no_group_is_on_both_sides(groups, share, seed) -> None:
    kept, held = hold_out(numbered(len(groups), groups), share, stream(seed, "held"), by="patient")
    assert len(kept) + len(held) == len(groups)
    assert len(kept) > 0 < len(held)
    assert set(kept.columns["patient"]).isdisjoint(held.columns["patient"])


def test_groups_come_near_to_the_share() -> None:
    groups = [number // 3 for number in range(300)]
    _, held = hold_out(numbered(300, groups), 0.2, stream(0, "held"), by="patient")
    assert len(held) == 60


def test_a_group_larger_than_the_share_is_not_taken_where_a_smaller_one_is_nearer() -> None:
    groups = [0] * 90 + [1] * 10
    for seed in range(10):
        _, held = hold_out(numbered(100, groups), 0.2, stream(seed, "held"), by="patient")
        assert set(held.columns["patient"]) == {"1"}


def test_the_stream_decides_who_is_held() -> None:
    first, again, other = (
        hold_out(numbered(100), 0.3, stream(seed, "held"))[1].labels.tolist() for seed in (0, 0, 1)
    )
    assert first == again != other


def test_a_share_of_one_example_is_drawn_too() -> None:
    held = {
        int(hold_out(numbered(20), 0.001, stream(seed, "held"))[1].labels[0]) for seed in range(20)
    }
    assert len(held) > 5


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_share_outside_its_range_is_refused(share) -> None:
    with pytest.raises(DataError, match="above 0 and below 1"):
        hold_out(numbered(10), share, stream(0, "held"))


def test_what_has_no_two_sides_is_refused() -> None:
    with pytest.raises(DataError, match="only 1 example"):
        hold_out(numbered(1), 0.5, stream(0, "held"))
    with pytest.raises(DataError, match="only 1 patient"):
        hold_out(numbered(5, [7] * 5), 0.5, stream(0, "held"), by="patient")
    with pytest.raises(DataError, match="did you mean patient"):
        hold_out(numbered(5, [1, 2, 3, 4, 5]), 0.5, stream(0, "held"), by="patent")


EXAMPLES = Examples(np.zeros((5, 1, 1, 1), np.uint8), np.arange(5))


def place(row: int) -> str:
    return f"labels.csv: line {row + 2}"


def test_a_column_says_who_is_trained_on_and_who_is_tested() -> None:
    values = ["train", "Test", "val", " TRAIN", "test"]
    train, test, validation = split_by_values(EXAMPLES, values, ["VAL"], place)
    assert train.labels.tolist() == [0, 3]
    assert test.labels.tolist() == [1, 4]
    assert validation is None
    _, _, validation = split_by_values(EXAMPLES, values, [], place)
    assert validation.labels.tolist() == [2]


def test_another_value_is_refused_with_its_place() -> None:
    with pytest.raises(DataError, match=r"labels\.csv: line 4: the split is 'no'; allowed:"):
        split_by_values(EXAMPLES, ["train", "test", "no", "train", "test"], [], place)


def test_a_share_is_drawn_by_the_seed() -> None:
    first, again, other = (
        split_by_share(EXAMPLES, 0.4, None, seed)[1].labels.tolist() for seed in (0, 0, 1)
    )
    assert first == again != other
    assert len(first) == 2
