"""The record every loader returns: training and test examples, checked, with their statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedbb.data.examples import Examples as Examples
from fedbb.data.examples import check_examples
from fedbb.data.longtail import long_tail
from fedbb.data.rows import (
    MapStyle,
    RowFormat,
    Table,
    encode_labels,
    known_classes,
    read_arrays,
    read_rows,
)
from fedbb.data.splits import split_by_share
from fedbb.data.transforms import Augmentation, channel_statistics
from fedbb.errors import DataError
from fedbb.records import Task
from fedbb.rng import stream


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set ready to be divided among clients.

    `from_torch` and `from_arrays` make one of data in memory, `fedbb.data.load_dataset` one of a
    built-in set or of files.

    Attributes:
        name: name for logs and reports.
        task: multi-class or multi-label.
        classes: names of the classes, by number.
        train: training examples.
        test: test examples.
        mean: mean per channel of the training inputs, with pixels in [0, 1]; empty if inputs are
            not normalized.
        std: standard deviation per channel; empty with `mean`.
        augmentation: random changes to training images.
        notes: what the loader left out or decided, for the log of a run.
    """

    name: str
    task: Task
    classes: tuple[str, ...]
    train: Examples
    test: Examples
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    augmentation: Augmentation = field(default_factory=Augmentation)
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        shape = "×".join(str(size) for size in self.input_shape)
        return (
            f"Dataset {self.name}: {self.task}, {len(self.classes)} classes, {len(self.train)} "
            f"training and {len(self.test)} test examples, inputs {self.train.inputs.dtype} {shape}"
        )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, such as (channels, height, width)."""
        return tuple(int(size) for size in self.train.inputs.shape[1:])

    @property
    def channels(self) -> int:
        """Size of an input's first axis: the channels of an image, the features of a vector."""
        return int(self.train.inputs.shape[1])

    @classmethod
    def from_torch(
        cls,
        train_set: MapStyle,
        test_set: MapStyle | None = None,
        *,
        name: str | None = None,
        task: Task | str | None = None,
        classes: Sequence[str] | None = None,
        columns: Sequence[str] = (),
        input_key: str | None = None,
        label_key: str | None = None,
        channels_last: bool | None = None,
        normalize: bool = False,
        augmentation: Augmentation | None = None,
        test_share: float | None = None,
        group: str | None = None,
        seed: int = 0,
    ) -> Dataset:
        """Read map-style data sets of torch, torchvision, Hugging Face and the like into memory.

        A row is a tuple (input, label) or a mapping. Inputs may have any shape, one for all rows:
        images (channels, height, width), vectors, signals, sequences of token ids, volumes. Floats
        are kept as float32. uint8 is taken as pixels, which a network sees in [0, 1], as after
        torchvision's `ToTensor`; a truth value as 0 or 1; other whole numbers stay whole, for an
        `nn.Embedding`. Images of Pillow become (channels, height, width). Rows are read once, so
        leave out random transforms.

        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> rows = TensorDataset(torch.rand(6, 4), torch.tensor([0, 1, 2, 0, 1, 2]))
        >>> data = Dataset.from_torch(rows, rows)
        >>> data.input_shape, data.task.value, data.classes
        ((4,), 'multiclass', ('0', '1', '2'))

        Args:
            train_set: training rows: anything with a length and numbered rows.
            test_set: test rows; without them `test_share` is needed.
            name: name of the data set; by default that of the class of `train_set`.
            task: "multiclass" or "multilabel". By default class numbers and names are multi-class;
                rows of 0, 1 and NaN (unknown) are multi-label.
            classes: names of the classes by number; by default those that `train_set` carries,
                the names among the labels, sorted, or numbers.
            columns: further facts of each row to keep, such as its site: keys of a mapping, or
                names for what follows input and label in a tuple.
            input_key: key of the input in rows that are mappings; by default "image", "img",
                "input", "x", "input_ids" or the like.
            label_key: key of the label; by default "label", "labels", "target" or "y".
            channels_last: whether arrays and tensors have their channels on the last axis; they
                are then moved to the first.
            normalize: whether inputs are shifted and scaled by the mean and standard deviation of
                the training inputs, per channel, or per feature of a vector.
            augmentation: random changes to training images; by default none.
            test_share: share of the training rows to hold out for testing, without a `test_set`.
            group: column whose values are not divided by `test_share`, such as the patient.
            seed: of the draw of `test_share`.

        Raises:
            DataError: rows that cannot be read or do not fit together; the message names the row.
        """
        title = name or type(train_set).__name__
        form = RowFormat(input_key, label_key, tuple(columns), channels_last)
        sets = {"train": train_set} | ({} if test_set is None else {"test": test_set})
        tables = {part: read_rows(rows, form, f"{title} {part}") for part, rows in sets.items()}
        known = classes or known_classes(train_set, label_key)
        made = _from_tables(title, tables, task, known, _TestShare(test_share, group, seed))
        return _finish(made, normalize, augmentation)

    @classmethod
    def from_arrays(
        cls,
        x_train: Any,
        y_train: Any,
        x_test: Any = None,
        y_test: Any = None,
        *,
        name: str = "arrays",
        task: Task | str | None = None,
        classes: Sequence[str] | None = None,
        columns: Mapping[str, Any] | None = None,
        channels_last: bool | None = None,
        normalize: bool = False,
        augmentation: Augmentation | None = None,
        test_share: float | None = None,
        group: str | None = None,
        seed: int = 0,
    ) -> Dataset:
        """Return the data set of arrays, tensors or lists; what is not said is as in `from_torch`.

        >>> data = Dataset.from_arrays([[0.5], [1.5], [2.5]], ["b", "a", "b"], [[1.0]], ["a"])
        >>> data.classes, data.train.labels.tolist(), data.test.labels.tolist()
        (('a', 'b'), [1, 0, 1], [0])

        Args:
            x_train: training inputs (N, …).
            y_train: their labels: class numbers or names (N,), or rows (N, C) of 0, 1 and NaN.
            x_test: test inputs; without them `test_share` is needed.
            y_test: their labels.
            name: name of the data set.
            task: as in `from_torch`.
            classes: as in `from_torch`.
            columns: further facts of the training examples by name, each (N,).
            channels_last: as in `from_torch`.
            normalize: as in `from_torch`.
            augmentation: as in `from_torch`.
            test_share: as in `from_torch`.
            group: as in `from_torch`.
            seed: as in `from_torch`.

        Raises:
            DataError: arrays that cannot be used or do not fit together.
        """
        arrays = {"train": (x_train, y_train, columns or {})}
        if x_test is not None:
            arrays["test"] = (x_test, y_test, {})
        tables = {
            part: read_arrays(*given, channels_last, f"{name} {part}")
            for part, given in arrays.items()
        }
        made = _from_tables(name, tables, task, classes, _TestShare(test_share, group, seed))
        return _finish(made, normalize, augmentation)

    def subset(self, number: int, seed: int = 0) -> Dataset:
        """Return the data set with some of its training examples, drawn at random.

        They keep their order. Test examples, mean and standard deviation stay as they are. A
        recipe's `data.train_images` draws the same examples by the seed of the run.

        Args:
            number: how many to keep.
            seed: of the draw.

        Raises:
            DataError: there are not so many.
        """
        if not 1 <= number <= len(self.train):
            raise DataError(
                f"{self.name} has {len(self.train)} examples to train on; a subset "
                f"(data.train_images of a recipe) cannot have {number}"
            )
        rng = stream(seed, "train images")
        kept = np.sort(rng.choice(len(self.train), number, replace=False))
        return replace(self, train=self.train.take(kept))

    def long_tail(self, fraction: float, seed: int = 0) -> Dataset:
        """Return the data set with class sizes that fall geometrically from first to last class.

        Test examples, mean and standard deviation stay as they are. A recipe's `data.long_tail`
        draws the same examples by the seed of the run.

        Args:
            fraction: size of the last class divided by that of the largest, above 0 and at most 1.
            seed: of the draw.

        Raises:
            DataError: the fraction is out of range, or the data is multi-label.
        """
        rng = stream(seed, "long tail")
        return replace(self, train=long_tail(self.train, len(self.classes), fraction, rng))


@dataclass(frozen=True)
class _TestShare:
    """Which of the training examples to hold out where there are no test examples."""

    share: float | None
    group: str | None
    seed: int


def _from_tables(
    name: str,
    tables: Mapping[str, Table],
    task: Task | str | None,
    classes: Sequence[str] | None,
    held: _TestShare,
) -> Dataset:
    """Return the data set of a table "train" and, unless a share is held out, a table "test"."""
    if ("test" in tables) == (held.share is not None):
        raise DataError(
            f"{name} needs test data, or test_share to hold out a share of the training data"
            + ("; it has both" if "test" in tables else "")
        )
    titles = {f"{name} {part}": table for part, table in tables.items()}
    kind, names, labels = encode_labels(titles, task, classes)
    parts = [
        Examples(table.inputs, encoded, table.columns)
        for table, encoded in zip(tables.values(), labels, strict=True)
    ]
    train, test = parts[0], parts[-1]
    if held.share is not None:
        check_examples(train, kind, len(names), f"{name} train")
        train, test = split_by_share(train, held.share, held.group, held.seed)
    return Dataset(name, kind, names, train, test)


def _finish(dataset: Dataset, normalize: bool, augmentation: Augmentation | None) -> Dataset:
    """Return the data set, checked, with its statistics and augmentation where they are asked."""
    dataset = check_dataset(replace(dataset, augmentation=augmentation or Augmentation()))
    if not normalize:
        return dataset
    if dataset.train.inputs.dtype.kind == "i":
        raise DataError(f"{dataset.name} holds whole numbers, which normalize has no meaning for")
    mean, std = channel_statistics(dataset.train.inputs)
    return replace(dataset, mean=mean, std=std)


def assemble(
    name: str, task: Task, classes: tuple[str, ...], train: Examples, test: Examples
) -> Dataset:
    """Return the data set with the statistics of its training images, if it is valid."""
    # The statistics of invalid images would warn before the check could name the place.
    check_examples(train, task, len(classes), f"{name} train")
    mean, std = channel_statistics(train.inputs)
    return check_dataset(Dataset(name, task, classes, train, test, mean, std))


def check_dataset(dataset: Dataset) -> Dataset:
    """Return the data set if its parts fit together; DataError names the first that does not."""
    _check_classes(dataset)
    for part, examples in (("train", dataset.train), ("test", dataset.test)):
        check_examples(examples, dataset.task, len(dataset.classes), f"{dataset.name} {part}")
    _check_shapes(dataset)
    return dataset


def _check_classes(dataset: Dataset) -> None:
    names = dataset.classes
    if not names:
        raise DataError(f"{dataset.name} has no classes")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{dataset.name} names the class {twice!r} twice")


def _check_shapes(dataset: Dataset) -> None:
    train, test = dataset.train.inputs, dataset.test.inputs
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise DataError(
            f"{dataset.name} trains on {train.dtype} inputs of shape {train.shape[1:]} "
            f"but tests on {test.dtype} of {test.shape[1:]}"
        )
    if dataset.augmentation.active and (train.ndim != 4 or train.dtype.kind == "i"):
        raise DataError(
            f"{dataset.name} cannot be cropped or flipped: its inputs are {train.dtype} of shape "
            f"{train.shape[1:]}, not images (channels, height, width)"
        )
    if dataset.mean or dataset.std:
        _check_statistics(dataset)


def _check_statistics(dataset: Dataset) -> None:
    for what, values in (("mean", dataset.mean), ("std", dataset.std)):
        if len(values) != dataset.channels or not np.isfinite(values).all():
            raise DataError(
                f"{dataset.name} has {what} {values}; needed is one number for each of "
                f"{dataset.channels} channels"
            )
    if min(dataset.std) <= 0:
        raise DataError(f"{dataset.name} has std {dataset.std}; each must be above 0")
