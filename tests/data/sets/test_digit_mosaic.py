import numpy as np
import pytest

from fedbb.data.dataset import check_dataset
from fedbb.data.registry import load_dataset
from fedbb.data.sets.digit_mosaic import COMMONEST, RAREST, cell_shares
from fedbb.data.sets.digits import split_digits
from fedbb.errors import DataError


def test_shares_of_a_cell_are_chances_whose_prevalence_falls_geometrically() -> None:
    shares = cell_shares()
    assert shares.sum() == pytest.approx(1)
    assert (shares > 0).all()
    prevalence = 1 - (1 - shares[:-1]) ** 4
    assert prevalence[[0, -1]] == pytest.approx([COMMONEST, RAREST])
    assert np.ptp(prevalence[1:] / prevalence[:-1]) == pytest.approx(0)


def test_labels_are_as_frequent_as_meant_in_both_parts() -> None:
    dataset = check_dataset(load_dataset("digit-mosaic"))
    assert dataset.train.inputs.shape == (3000, 1, 16, 16)
    assert len(dataset.test) == 1000
    expected = 1 - (1 - cell_shares()[:-1]) ** 4
    for part in (dataset.train, dataset.test):
        error = np.sqrt(expected * (1 - expected) / len(part))
        assert (np.abs(part.labels.mean(axis=0) - expected) < 4 * error).all()


def test_a_seed_makes_the_mosaics_and_another_makes_others() -> None:
    options = {"train": 50, "test": 20}
    first, again, other = (
        load_dataset("digit-mosaic", seed=seed, options=options) for seed in (0, 0, 1)
    )
    assert np.array_equal(first.train.inputs, again.train.inputs)
    assert np.array_equal(first.test.labels, again.test.labels)
    assert not np.array_equal(first.train.inputs, other.train.inputs)
    assert not np.array_equal(first.train.labels, other.train.labels)


def best_match(image: np.ndarray, digits: np.ndarray) -> np.ndarray:
    """Return the smallest mean difference of each digit from any window of the mosaic."""
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image.astype(float), 1), (8, 8))
    inner = np.lib.stride_tricks.sliding_window_view(np.pad(np.ones((16, 16)), 1), (8, 8))
    difference = np.abs(windows.reshape(-1, 1, 64) - digits.reshape(1, -1, 64).astype(float))
    seen = inner.reshape(-1, 1, 64)
    return ((difference * seen).sum(axis=2) / seen.sum(axis=2)).min(axis=0)


def test_each_mosaic_shows_real_digits_of_its_labels_taken_from_its_own_part() -> None:
    dataset = load_dataset("digit-mosaic", options={"train": 8, "test": 8})
    train, test = split_digits()
    for part, own, other in ((dataset.train, train, test), (dataset.test, test, train)):
        found = []
        for image, marks in zip(part.inputs, part.labels, strict=True):
            near, far = (best_match(image[0], digits.inputs[:, 0]) for digits in (own, other))
            for label in np.flatnonzero(marks):
                mine, theirs = near[own.labels == label].min(), far[other.labels == label].min()
                # Noise of spread 16 differs by 16·√(2/π) ≈ 13 on average, less where it is cut off.
                found.append(mine < 16 and mine < theirs)
        # A neighbor may lie over the edge of a digit, so that not each is found again.
        assert len(found) > 10
        assert np.mean(found) > 0.75


def test_an_image_without_any_digit_is_only_noise() -> None:
    train = load_dataset("digit-mosaic").train
    empty = train.inputs[train.labels.sum(axis=1) == 0]
    assert 0.02 < len(empty) / len(train) < 0.1
    assert empty.mean() < 10
    assert empty.max() < 100


@pytest.mark.parametrize("options", [{"train": 0}, {"test": -1}])
def test_no_mosaics_are_refused(options) -> None:
    with pytest.raises(DataError, match="at least 1"):
        load_dataset("digit-mosaic", options=options)
