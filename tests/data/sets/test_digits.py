import numpy as np
from sklearn.datasets import load_digits

from fedbb.data.dataset import check_dataset
from fedbb.data.registry import load_dataset

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
