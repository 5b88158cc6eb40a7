from dataclasses import replace

import numpy as np
import pytest

from fedbb.data.checks import check_dataset
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.transforms import Augmentation
from fedbb.errors import DataError
from fedbb.records import Task


def test_taken_examples_keep_image_label_and_columns_together() -> None:
    images = np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1)
    examples = Examples(images, np.array([10, 11, 12, 13]), {"site": np.array(list("abcd"))})
    taken = examples.take(np.array([2, 0]))
    assert len(taken) == 2
    assert taken.inputs.ravel().tolist() == [2, 0]
    assert taken.labels.tolist() == [12, 10]
    assert taken.columns["site"].tolist() == ["c", "a"]


def test_channels_are_those_of_the_images() -> None:
    examples = Examples(np.zeros((2, 3, 4, 5), np.uint8), np.zeros(2, np.int64))
    dataset = Dataset("x", Task.MULTICLASS, ("a",), examples, examples, (0.0,) * 3, (1.0,) * 3)
    assert dataset.channels == 3
    assert dataset.notes == ()


def test_the_text_of_a_data_set_says_its_form_and_holds_no_arrays() -> None:
    examples = Examples(np.zeros((2, 3, 4, 5), np.uint8), np.zeros(2, np.int64))
    dataset = Dataset("x", Task.MULTICLASS, ("a",), examples, examples)
    counts = "1 classes, 2 training and 2 test examples"
    assert repr(dataset) == f"Dataset x: multiclass, {counts}, inputs uint8 3×4×5"
    assert repr(examples) == "Examples: inputs uint8 (2, 3, 4, 5), labels int64 (2,)"


def test_an_augmentation_is_active_if_it_changes_anything() -> None:
    assert not Augmentation().moves
    assert Augmentation(crop=1).moves
    assert Augmentation(flip=True).moves


IMAGES = np.linspace(0, 1, 4 * 3 * 2 * 2, dtype=np.float32).reshape(4, 3, 2, 2)
LABELS = np.array([0, 1, 2, 0])
MARKS = np.array([[0, 1], [1, np.nan], [0, 0], [1, 1]], dtype=np.float32)


def multiclass(**changes) -> Dataset:
    train = Examples(IMAGES, LABELS, {"site": np.array(list("abab"))})
    dataset = Dataset(
        "made", Task.MULTICLASS, ("a", "b", "c"), train, train, (0.5,) * 3, (1.0,) * 3
    )
    return replace(dataset, **changes)


def multilabel(labels=MARKS) -> Dataset:
    train = Examples(IMAGES, labels)
    return replace(multiclass(), task=Task.MULTILABEL, classes=("a", "b"), train=train, test=train)


def test_a_sound_data_set_passes_as_it_is() -> None:
    for dataset in (multiclass(), multilabel()):
        assert check_dataset(dataset) is dataset


def with_pixel(value: float) -> Examples:
    images = IMAGES.copy()
    images[2, 1, 0, 0] = value
    return Examples(images, LABELS)


def both(inputs) -> dict[str, Examples]:
    return {"train": Examples(inputs, LABELS), "test": Examples(inputs, LABELS)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": with_pixel(np.nan)}, "made train input 2 holds NaN"),
        ({"test": with_pixel(-np.inf)}, "made test input 2 holds NaN or infinity"),
        ({"train": Examples(IMAGES, np.array([0, 1, 3, 0]))}, "train label 2 is 3; .* 0 to 2"),
        ({"test": Examples(IMAGES, np.array([0, -1, 1, 0]))}, "test label 1 is -1"),
        ({"train": Examples(IMAGES, LABELS[:3])}, "4 inputs but 3 labels"),
        ({"train": Examples(IMAGES, LABELS.astype(float))}, "labels are float64"),
        ({"train": Examples(IMAGES, MARKS)}, "one whole number per example"),
        ({"train": Examples(IMAGES[:0], LABELS[:0])}, "train set is empty"),
        ({"test": Examples(IMAGES[:0], LABELS[:0])}, "test set is empty"),
        ({"train": Examples(IMAGES[:, 0, 0, 0], LABELS)}, r"shape \(4,\)"),
        ({"train": Examples(IMAGES[:, :0], LABELS)}, r"shape \(4, 0, 2, 2\)"),
        (
            {"train": Examples(IMAGES.astype(float), LABELS)},
            "float64; allowed: uint8, float32, int32, int64",
        ),
        ({"test": Examples(IMAGES[..., :1], LABELS)}, "trains on .* but tests on"),
        ({"test": Examples(IMAGES.astype(np.uint8), LABELS)}, "but tests on uint8"),
        (
            {"train": Examples(IMAGES, LABELS, {"site": np.array(["a"])})},
            "4 inputs but 1 column site",
        ),
        ({"augmentation": Augmentation(flip=True), **both(IMAGES[:, 0])}, "not images"),
        ({"augmentation": Augmentation(crop=1), **both(IMAGES.astype(int))}, "cropped or flipped"),
        ({"augmentation": Augmentation(padding="edge")}, "'edge'; allowed: zeros, reflect"),
        ({"augmentation": Augmentation(crop=2, padding="reflect")}, r"cropped by 2 .* \(3, 2, 2\)"),
        ({"classes": ()}, "no classes"),
        ({"classes": ("a", "b", "a")}, "'a' twice"),
        ({"mean": (0.5,)}, "each of 3 channels"),
        ({"std": (1.0, np.nan, 1.0)}, "each of 3 channels"),
        ({"std": (1.0, 0.0, 1.0)}, "above 0"),
    ],
)
def test_what_does_not_fit_is_named(changes, message) -> None:
    with pytest.raises(DataError, match=message):
        check_dataset(multiclass(**changes))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.where(MARKS == 0, -1, MARKS), "label 0 of class 0 is -1; allowed: 0, 1 and NaN"),
        (np.where(np.isnan(MARKS), 0.5, MARKS), "label 1 of class 1 is 0.5"),
        (MARKS[:, :1], r"float32 of shape \(N, 2\)"),
        (LABELS, r"float32 of shape \(N, 2\)"),
    ],
)
def test_multi_label_marks_are_0_1_or_unknown(labels, message) -> None:
    with pytest.raises(DataError, match=message):
        check_dataset(multilabel(labels))


def test_a_subset_keeps_order_test_data_and_statistics() -> None:
    data = multiclass()
    some = data.subset(3, seed=1)
    assert len(some.train) == 3
    places = [IMAGES.tolist().index(image) for image in some.train.inputs.tolist()]
    assert places == sorted(places)
    assert some.train.labels.tolist() == LABELS[places].tolist()
    assert some.train.columns["site"].tolist() == [list("abab")[place] for place in places]
    assert (some.test, some.mean, some.std) == (data.test, data.mean, data.std)
    drawn = {tuple(data.subset(2, seed=seed).train.inputs.ravel()) for seed in range(9)}
    assert len(drawn) > 1
    assert np.array_equal(data.subset(2).train.inputs, data.subset(2, seed=0).train.inputs)


@pytest.mark.parametrize("number", [0, -1, 5])
def test_a_subset_of_more_than_there_is_or_of_nothing_is_refused(number) -> None:
    with pytest.raises(DataError, match=rf"has 4 examples.*cannot have {number}"):
        multiclass().subset(number)


def test_a_long_tail_reduces_the_later_classes_and_leaves_test_data() -> None:
    labels = np.repeat([0, 1, 2], 20)
    train = Examples(np.zeros((60, 3, 2, 2), np.float32), labels)
    data = multiclass(train=train)
    tail = data.long_tail(0.25)
    assert np.bincount(tail.train.labels).tolist() == [20, 10, 5]
    assert tail.test is data.test
    with pytest.raises(DataError, match="above 0 and at most 1"):
        data.long_tail(0.0)
    with pytest.raises(DataError, match="one class per image"):
        multilabel().long_tail(0.5)
