"""Digits and mosaics of digits, made from scikit-learn's data."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedbb.data.checks import check_dataset
from fedbb.data.registry import load_dataset
from fedbb.data.sets.embedded import COMMONEST, RAREST, cell_shares, split_digits
from fedbb.errors import DataError

TEST_BEGINS = [4, 9, 4, 6, 3, 6, 9, 4, 7, 3, 0, 2, 3, 6, 4, 1, 5, 0, 8, 0]


def test_all_1797_digits_are_there_once() -> None:
    dataset = check_dataset(load_dataset("digits"))
    assert len(dataset.train) + len(dataset.test) == 1797
    assert dataset.train.inputs.shape[1:] == (1, 8, 8)
    ours = np.concatenate([dataset.train.inputs, dataset.test.inputs]).reshape(1797, 64)
    theirs = np.rint(load_digits().data * 255 / 16).astype(np.uint8)
    assert np.array_equal(np.unique(ours, axis=0), np.unique(theirs, axis=0))


def test_a_fifth_of_each_class_is_for_testing() -> None:
    dataset = load_dataset("digits")
    test, train = (np.bincount(part.labels) for part in (dataset.test, dataset.train))
    assert np.allclose(test / (test + train), 0.2, atol=0.01)
    assert dataset.classes == tuple("0123456789")


def test_the_split_does_not_depend_on_the_seed() -> None:
    first, second = load_dataset("digits", seed=0), load_dataset("digits", seed=1)
    assert np.array_equal(first.train.inputs, second.train.inputs)
    assert np.array_equal(first.test.labels, second.test.labels)
    # The split is part of the data set: a change of it would make earlier scores incomparable.
    assert first.test.labels[:20].tolist() == TEST_BEGINS


def test_pixels_are_whole_sixteenths_over_the_full_range() -> None:
    dataset = load_dataset("digits")
    assert dataset.train.inputs.dtype == np.uint8
    levels = np.unique(dataset.train.inputs)
    assert levels.tolist() == np.rint(np.arange(17) * 255 / 16).tolist()
    pixels = dataset.train.inputs / 255
    assert np.isclose(dataset.mean[0], pixels.mean())
    assert np.isclose(dataset.std[0], pixels.std())
    assert not dataset.augmentation.moves


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


@pytest.mark.slow
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
