"""The record every loader returns: training and test examples, checked, with their statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fedbb.data.checks import check_dataset, check_examples
from fedbb.data.examples import Examples as Examples
from fedbb.data.examples import NoiseKind, long_tail, noisy_labels
from fedbb.data.mapped import Inputs, stay_on_disk, take_rows
from fedbb.data.rows import (
    MapStyle,
    RowFormat,
    Table,
    encode_labels,
    known_classes,
    read_arrays,
    read_rows,
)
from fedbb.data.source import Source, read_options
from fedbb.data.splits import split_by_share
from fedbb.data.statistics import ChannelSums, channel_sums, federated_statistics
from fedbb.data.tabular import TableFormat
from fedbb.data.transforms import Augmentation, channel_statistics
from fedbb.errors import DataError
from fedbb.records import IntArray, Task
from fedbb.rng import stream


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set ready to be divided among clients.

    The functions `from_…` make one of data in memory or of files, `fedbb.data.load_dataset` one of
    a built-in set or of files, with the settings of a recipe.

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
        validation: validation examples, if the data set has a part of its own for them.
        features: names of the entries of an input that is a vector; empty if they have none.
        scaled: which of these entries `normalized` changes; empty for all of them.
        table: how the rows of a raw table become inputs, for a data set of named columns.
        public: inputs without labels that every client and the server have, if a method learns
            from them.
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
    validation: Examples | None = None
    features: tuple[str, ...] = ()
    scaled: tuple[bool, ...] = ()
    table: TableFormat | None = None
    public: Inputs | None = None

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
        size: int | tuple[int, int] | None = None,
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
            size: height and width that images are scaled to, or one number for both.
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
        form = RowFormat(input_key, label_key, tuple(columns), channels_last, _size(size, title))
        sets = {"train": train_set} | ({} if test_set is None else {"test": test_set})
        tables = {part: read_rows(rows, form, f"{title} {part}") for part, rows in sets.items()}
        known = classes or known_classes(train_set, label_key)
        made = from_tables(title, tables, task, known, TestShare(test_share, group, seed))
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
        size: int | tuple[int, int] | None = None,
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
            size: as in `from_torch`.
            normalize: as in `from_torch`.
            augmentation: as in `from_torch`.
            test_share: as in `from_torch`.
            group: as in `from_torch`.
            seed: as in `from_torch`.

        Raises:
            DataError: arrays that cannot be used or do not fit together.
        """
        form = RowFormat(channels_last=channels_last, size=_size(size, name))
        arrays = {"train": (x_train, y_train, columns or {})}
        if x_test is not None:
            arrays["test"] = (x_test, y_test, {})
        tables = {
            part: read_arrays(*given, form, f"{name} {part}") for part, given in arrays.items()
        }
        made = from_tables(name, tables, task, classes, TestShare(test_share, group, seed))
        return _finish(made, normalize, augmentation)

    @classmethod
    def from_folder(
        cls,
        path: str | PathLike[str],
        *,
        size: int | tuple[int, int] | None = None,
        channels: int = 3,
        classes: Sequence[str] = (),
        test_share: float = 0.2,
        unreadable: str = "refuse",
        augmentation: Augmentation | None = None,
        seed: int = 0,
    ) -> Dataset:
        """Read images from one folder for each class, as torchvision's `ImageFolder` does.

        The folder holds the class folders, or the folders train, test and val with class folders
        in each. Without a folder test, val is the test part, or else a share is drawn. A .zip or
        .tar archive of such a folder is read as well.

        Args:
            path: the folder.
            size: height and width that images are scaled to, or one number for both; without it
                all images must agree.
            channels: 1 for grey, 3 for color.
            classes: names of the classes in order; by default all folders in alphabetical order.
            test_share: share of the images to hold out for testing, without a folder of them.
            unreadable: "refuse" for an error that names an unreadable image, or "skip".
            augmentation: random changes to training images; by default none.
            seed: of the draw of `test_share`.

        Returns:
            The data set, normalized; its column `file` has the path of each image.

        Raises:
            DataError: the folder has another layout, or an image cannot be read.
        """
        from fedbb.data.sets import folder  # which imports this module

        options = {
            "size": size,
            "channels": channels,
            "classes": tuple(classes),
            "test_share": test_share,
            "unreadable": unreadable,
        }
        made = folder.load(Source("folder", path=Path(path), seed=seed, options=options))
        return check_dataset(replace(made, augmentation=augmentation or Augmentation()))

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        labels: str | Sequence[str],
        test: Any = None,
        validation: Any = None,
        *,
        name: str = "frame",
        seed: int = 0,
        **options: Any,
    ) -> Dataset:
        """Return a table of features as a data set, for networks of vectors.

        Numbers are standardized and categories become entries of 0 and 1, all by the training
        rows alone. A category that no training row has is 0 in all of these entries.

        >>> rows = {"age": [40, 60, 50, 70], "sex": ["f", "m", "f", "m"], "ill": [0, 1, 0, 1]}
        >>> data = Dataset.from_frame(rows, "ill", rows)
        >>> data.features, data.train.inputs.tolist()[0], data.mean
        (('age', 'sex=f', 'sex=m'), [40.0, 1.0, 0.0], (55.0, 0.0, 0.0))

        Args:
            frame: the training rows, or all of them: a frame of pandas or Polars, or a mapping of
                columns.
            labels: the column of class names, or several columns of 0 and 1 (multi-label).
            test: the test rows; else the options `test_share` or `split_column` tell them.
            validation: validation rows, if there are any.
            name: name of the data set.
            seed: of the draw of a test share.
            options: `columns` to keep (such as the site), `group`, `numeric`, `categorical`,
                `ignore`, `missing`, `indicator` and the others of `data.name = "features"` in a
                recipe.

        Raises:
            DataError: an unknown option or column, or a value that is not allowed; the message
                names the row.
        """
        from fedbb.data.sets import features  # which imports this module

        where = {"class_column": labels} if isinstance(labels, str) else {"label_columns": labels}
        given = {key: tuple(v) if isinstance(v, list) else v for key, v in options.items()}
        source = Source("frame", options={**given, **where})
        chosen = read_options(features.FeatureOptions, source)
        named = {"test": test, "validation": validation}
        parts = {
            part: features.table_of_frame(rows, f"{name} {part}")
            for part, rows in named.items()
            if rows is not None
        }
        if parts and "test" not in parts:
            raise DataError(f"{name} has validation rows and no test rows")
        table = features.table_of_frame(frame, name)
        share = "test_share" in options
        return features.make_dataset(name, table, chosen, seed, parts, share=share)

    @classmethod
    def from_hf(
        cls,
        data: Any,
        test: Any = None,
        *,
        name: str = "hf",
        classes: Sequence[str] | None = None,
        input_key: str | None = None,
        label_key: str | None = None,
        columns: Sequence[str] = (),
        size: int | tuple[int, int] | None = None,
        normalize: bool = False,
        augmentation: Augmentation | None = None,
        test_share: float | None = None,
        group: str | None = None,
        seed: int = 0,
    ) -> Dataset:
        """Read a `Dataset` or `DatasetDict` of Hugging Face's library into memory.

        Column names say what is what. Inputs are treated as in `from_torch`; the types of arrays
        and the names of classes come from the features of the data set, and lists of classes are
        multi-label. The splits train, test and validation of a `DatasetDict` are used as such.

        Args:
            data: the training rows, or all splits.
            test: test rows; without them or a split of that name `test_share` is needed.
            name: name of the data set.
            classes: names of the classes by number; by default those of the features.
            input_key: column of the inputs; by default "image", "input_ids" or another usual name.
            label_key: column of the labels; by default "label", "labels", "target" or "y".
            columns: further columns to keep, such as the site.
            size: as in `from_torch`.
            normalize: as in `from_torch`.
            augmentation: as in `from_torch`.
            test_share: as in `from_torch`.
            group: as in `from_torch`.
            seed: as in `from_torch`.

        Raises:
            DataError: rows that cannot be read or do not fit together; the message names the row.
        """
        from fedbb.data.sets import hugging_face  # which imports this module

        splits = dict(data) if isinstance(data, Mapping) else {"train": data}
        if test is not None:
            splits["test"] = test
        form = RowFormat(input_key, label_key, tuple(columns), size=_size(size, name))
        known = None if classes is None else tuple(classes)
        share = TestShare(test_share, group, seed)
        made = hugging_face.make_dataset(name, splits, form, known, share)
        return _finish(made, normalize, augmentation)

    def subset(self, number: int, seed: int = 0) -> Dataset:
        """Return the data set with some of its training examples, drawn at random.

        They keep their order. Test examples, mean and standard deviation stay as they are. A
        recipe's `data.train_images` draws the same examples by the seed of the run.

        Args:
            number: how many to keep.
            seed: of the draw.

        Raises:
            DataError: there are fewer.
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

    def with_label_noise(
        self, rate: float, kind: NoiseKind = "symmetric", seed: int = 0
    ) -> Dataset:
        """Return the data set with some wrong training labels; test labels stay as they are.

        A recipe's `data.label_noise` draws the same way, after the partition.

        Args:
            rate: the probability that a label is wrong, from 0 to below 1.
            kind: wrong labels are any other class ("symmetric") or the next one ("pair").
            seed: of the draw.

        Raises:
            DataError: a value out of range, or multi-label data.
        """
        rng = stream(seed, "label noise")
        labels = noisy_labels(self.train.labels, len(self.classes), rate, kind, rng)
        return replace(self, train=replace(self.train, labels=labels))

    def normalized(self, clients: Iterable[IntArray] | None = None) -> Dataset:
        """Return the data set with mean and standard deviation of its training inputs.

        Inputs themselves stay as they are; they are shifted and scaled when a network gets them.
        A recipe says this by `data.normalize`.

        Args:
            clients: the rows of each client, such as a `Partition`. The statistics are then
                computed from sums of each client, which need not pool the data; without it, from
                all training inputs at once. Both agree but for rounding.

        Raises:
            DataError: the inputs are whole numbers such as token ids.
        """
        if clients is None:
            return self._scaled_by(*channel_statistics(self._real_inputs()))
        return self.normalized_by(self.channel_sums(rows) for rows in clients)

    def channel_sums(self, rows: IntArray) -> ChannelSums:
        """Return what the holder of these training rows adds to the sums of all clients.

        Raises:
            DataError: the inputs are whole numbers such as token ids.
        """
        return channel_sums(take_rows(self._real_inputs(), rows))

    def _real_inputs(self) -> Inputs:
        if self.train.inputs.dtype.kind == "i":
            raise DataError(f"{self.name} holds whole numbers, which normalize has no meaning for")
        return self.train.inputs

    def normalized_by(self, clients: Iterable[ChannelSums]) -> Dataset:
        """Return the data set with mean and standard deviation from sums of clients.

        Args:
            clients: the sums of each client, or one sum of all of them.

        Raises:
            DataError: there are no samples, or the sums differ in the number of channels.
        """
        return self._scaled_by(*federated_statistics(clients))

    def _scaled_by(self, mean: tuple[float, ...], std: tuple[float, ...]) -> Dataset:
        if self.scaled:
            mean = tuple(m if s else 0.0 for m, s in zip(mean, self.scaled, strict=True))
            std = tuple(m if s else 1.0 for m, s in zip(std, self.scaled, strict=True))
        return replace(self, mean=mean, std=std)


@dataclass(frozen=True)
class TestShare:
    """Which of the training examples to hold out where there are no test examples."""

    share: float | None
    group: str | None
    seed: int


def _size(size: int | tuple[int, int] | None, name: str) -> tuple[int, int] | None:
    if size is None:
        return None
    from fedbb.data.images.decode import as_size  # Pillow takes time to import

    return as_size(size, name)


def from_tables(
    name: str,
    tables: Mapping[str, Table],
    task: Task | str | None,
    classes: Sequence[str] | None,
    held: TestShare,
) -> Dataset:
    """Return the data set of tables "train", "test" unless a share is held out, "validation"."""
    if ("test" in tables) == (held.share is not None):
        raise DataError(
            f"{name} needs test data, or test_share to hold out a share of the training data"
            + ("; it has both" if "test" in tables else "")
        )
    titles = {f"{name} {part}": table for part, table in tables.items()}
    kind, names, labels = encode_labels(titles, task, classes)
    parts = {
        part: Examples(stay_on_disk(table.inputs), encoded, table.columns)
        for (part, table), encoded in zip(tables.items(), labels, strict=True)
    }
    validation = parts.get("validation")
    if held.share is None:
        return Dataset(name, kind, names, parts["train"], parts["test"], validation=validation)
    check_examples(parts["train"], kind, len(names), f"{name} train")
    train, test = split_by_share(parts["train"], held.share, held.group, held.seed)
    return Dataset(name, kind, names, train, test, validation=validation)


def _finish(dataset: Dataset, normalize: bool, augmentation: Augmentation | None) -> Dataset:
    """Return the data set, checked, with its statistics and augmentation where they are asked."""
    dataset = check_dataset(replace(dataset, augmentation=augmentation or Augmentation()))
    return dataset.normalized() if normalize else dataset


def assemble(
    name: str,
    task: Task,
    classes: tuple[str, ...],
    train: Examples,
    test: Examples,
    validation: Examples | None = None,
) -> Dataset:
    """Return the data set with the statistics of its training inputs, if it is valid.

    Token ids have no statistics.
    """
    train, test = (replace(part, inputs=stay_on_disk(part.inputs)) for part in (train, test))
    if validation is not None:
        validation = replace(validation, inputs=stay_on_disk(validation.inputs))
    made = check_dataset(Dataset(name, task, classes, train, test, validation=validation))
    return made if train.inputs.dtype.kind == "i" else made.normalized()
