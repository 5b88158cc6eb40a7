import numpy as np
import pytest

from fedbb.data.dataset import Examples
from fedbb.data.splitting import split_by_share, split_by_values
from fedbb.errors import DataError

EXAMPLES = Examples(np.zeros((5, 1, 1, 1), np.uint8), np.arange(5))


def place(row: int) -> str:
    return f"labels.csv: line {row + 2}"


def test_a_column_says_who_is_trained_on_and_who_is_tested() -> None:
    values = ["train", "Test", "val", " TRAIN", "test"]
    train, test = split_by_values(EXAMPLES, values, ["VAL"], place)
    assert train.labels.tolist() == [0, 3]
    assert test.labels.tolist() == [1, 4]


def test_another_value_is_refused_with_its_place() -> None:
    with pytest.raises(DataError, match=r"labels\.csv: line 4: the split is 'val'; allowed are"):
        split_by_values(EXAMPLES, ["train", "test", "val", "train", "test"], [], place)


def test_a_share_is_drawn_by_the_seed() -> None:
    first, again, other = (
        split_by_share(EXAMPLES, 0.4, None, seed)[1].labels.tolist() for seed in (0, 0, 1)
    )
    assert first == again != other
    assert len(first) == 2
