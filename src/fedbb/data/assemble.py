"""A user's examples made into a data set: checked, then measured."""

from __future__ import annotations

from fedbb.data.check import check_dataset, check_examples
from fedbb.data.dataset import Dataset, Examples
from fedbb.data.statistics import channel_statistics
from fedbb.records import Task


def assemble(
    name: str, task: Task, classes: tuple[str, ...], train: Examples, test: Examples
) -> Dataset:
    """Return the data set, with mean and spread of its training images, if it is sound."""
    # The statistics of unsound images would warn before the check could name the place.
    check_examples(train, task, len(classes), f"{name} train")
    mean, std = channel_statistics(train.images)
    return check_dataset(Dataset(name, task, classes, train, test, mean, std))
