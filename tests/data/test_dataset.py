import numpy as np

from fedbb.data.dataset import Augmentation, Dataset, Examples
from fedbb.records import Task


def test_taken_examples_keep_image_label_and_columns_together() -> None:
    images = np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1)
    examples = Examples(images, np.array([10, 11, 12, 13]), {"site": np.array(list("abcd"))})
    taken = examples.take(np.array([2, 0]))
    assert len(taken) == 2
    assert taken.images.ravel().tolist() == [2, 0]
    assert taken.labels.tolist() == [12, 10]
    assert taken.columns["site"].tolist() == ["c", "a"]


def test_channels_are_those_of_the_images() -> None:
    examples = Examples(np.zeros((2, 3, 4, 5), np.uint8), np.zeros(2, np.int64))
    dataset = Dataset("x", Task.MULTICLASS, ("a",), examples, examples, (0.0,) * 3, (1.0,) * 3)
    assert dataset.channels == 3
    assert dataset.notes == ()


def test_an_augmentation_is_active_if_it_changes_anything() -> None:
    assert not Augmentation().active
    assert Augmentation(crop=1).active
    assert Augmentation(flip=True).active
