"""Ways to divide a data set among clients, one function each."""

from __future__ import annotations

from numbers import Integral
from os import PathLike, fspath
from typing import Any

import numpy as np
import numpy.typing as npt

from fedbb.data.dataset import Dataset
from fedbb.errors import DataError
from fedbb.partition.algorithms import HolderChoice, by_value
from fedbb.partition.partition import Partition
from fedbb.partition.registry import MIN_SAMPLES, Rule, divide, measured


def dirichlet(
    data: Dataset, clients: int, concentration: float, seed: int = 0, min_samples: int = MIN_SAMPLES
) -> Partition:
    """Divide every class by Dirichlet shares of its own: clients differ in labels and in size.

    In a recipe this is the kind "label-skew". For multi-class data the same seed gives the split
    of FedML, MOON, FedAlign and NIID-Bench.

    >>> import fedbb
    >>> data = fedbb.data.load_dataset("digits")
    >>> fedbb.partition.dirichlet(data, clients=4, concentration=0.5)
    Partition of 1438 samples among 4 clients (label-skew): 289 to 397 each, median 376; skew 0.493

    Args:
        data: the data set, whose training examples are divided.
        clients: number of clients.
        concentration: the smaller, the more the clients differ; above 0.
        seed: of the draw.
        min_samples: samples that every client must have; it is drawn again until they do.

    Returns:
        The partition.

    Raises:
        DataError: a value outside of its range, or a minimum that no draw reaches.
    """
    return _divide(data, Rule("label-skew", clients, concentration, min_samples, seed))


def quantity(
    data: Dataset, clients: int, concentration: float, seed: int = 0, min_samples: int = MIN_SAMPLES
) -> Partition:
    """Divide at random with Dirichlet shares: clients differ in size only.

    In a recipe this is the kind "quantity-skew".

    Args:
        data: the data set, whose training examples are divided.
        clients: number of clients.
        concentration: the smaller, the more the sizes differ; above 0.
        seed: of the draw.
        min_samples: samples that every client must have; it is drawn again until they do.

    Returns:
        The partition.

    Raises:
        DataError: a value outside of its range, or a minimum that no draw reaches.
    """
    return _divide(data, Rule("quantity-skew", clients, concentration, min_samples, seed))


def iid(data: Dataset, clients: int, seed: int = 0) -> Partition:
    """Divide at random in equal parts; in a recipe this is the kind "even".

    Args:
        data: the data set, whose training examples are divided.
        clients: number of clients.
        seed: of the draw.

    Returns:
        The partition.

    Raises:
        DataError: no clients, or more than samples.
    """
    return _divide(data, Rule("even", clients, seed=seed))


def by_column(data: Dataset, column: str, clients: int | None = None, seed: int = 0) -> Partition:
    """Divide by a column of the data, such as the site; in a recipe this is the kind "column".

    Args:
        data: the data set, whose training examples are divided.
        column: the column; each of its values is a client, in sorted order.
        clients: number of clients to which whole values are assigned instead, so that their sizes
            are about equal.
        seed: of the draw among values of equal size.

    Returns:
        The partition.

    Raises:
        DataError: no such column, or more clients than it has values.
    """
    return _divide(data, Rule("column", clients, seed=seed, column=column))


def pathological(
    data: Dataset,
    clients: int,
    classes_per_client: int,
    seed: int = 0,
    holders: HolderChoice | None = None,
) -> Partition:
    """Give every client a fixed number of classes; in a recipe this is the kind "pathological".

    The samples of a class are divided evenly among the clients that hold it. In multi-label data
    one of a sample's positive classes, drawn at random, stands for the sample.

    Args:
        data: the data set, whose training examples are divided.
        clients: number of clients.
        classes_per_client: number of classes of each client.
        seed: of the draw.
        holders: "even", the default: the numbers of holders of the classes differ by one at most.
            "random": one class in turn and the others drawn, the split "#C=k" of NIID-Bench.

    Returns:
        The partition.

    Raises:
        DataError: the clients cannot hold all classes, or a class has too few samples.
    """
    rule = Rule(
        "pathological", clients, seed=seed, classes_per_client=classes_per_client, holders=holders
    )
    return _divide(data, rule)


def shards(data: Dataset, clients: int, shards_per_client: int = 2, seed: int = 0) -> Partition:
    """Sort by class, cut into equal shards and deal each client some; the recipe's kind "shards".

    This is the pathological split of McMahan et al. (2017). In multi-label data one of a sample's
    positive classes, drawn at random, stands for the sample.

    Args:
        data: the data set, whose training examples are divided.
        clients: number of clients.
        shards_per_client: number of shards of each client.
        seed: of the draw.

    Returns:
        The partition.

    Raises:
        DataError: a number below one, or more shards than samples.
    """
    return _divide(data, Rule("shards", clients, shards_per_client=shards_per_client, seed=seed))


def from_owners(data: Dataset, owners: npt.ArrayLike) -> Partition:
    """Return the partition in which `owners` names the client of every training example.

    Args:
        data: the data set.
        owners: (N,) numbers of clients from 0, none left out; or names of clients, such as sites,
            which are numbered in sorted order.

    Returns:
        The partition.

    Raises:
        DataError: not one owner for each example, negative numbers, or a client without examples.
    """
    array = np.asarray(owners)
    if array.shape != (len(data.train),):
        raise DataError(
            f"owners has shape {array.shape}; needed: ({len(data.train)},), one for each example"
        )
    if array.dtype.kind not in "iu":
        array = by_value(array.astype(np.str_))
    # A number beyond the examples leaves a gap below; all numbers up to it might fill the memory.
    missing = np.setdiff1d(np.arange(min(int(array.max()), len(array)) + 1), array)
    if array.min() < 0 or len(missing):
        raise DataError(
            f"owners runs from {array.min()} to {array.max()}"
            + (f" and client {missing[0]} has no example" if len(missing) else "")
            + "; clients are numbered from 0 without gaps"
        )
    return measured(array.astype(np.int64), data.train.labels, {"kind": "owners"})


def from_flwr(data: Dataset, partitioner: Any, row: str | None = None) -> Partition:
    """Return the division that a partitioner of flwr-datasets makes of the training examples.

    A partitioner without a data set gets one of a row for each training example, with its class
    as `label`, the columns of the data, and its number. Of one with a data set of its own, `row`
    names the column that has the number of each training example. The partitioner may be of any
    kind: `num_partitions` and `load_partition(client)` are what it needs.

    Args:
        data: the data set, whose training examples are divided.
        partitioner: the partitioner.
        row: column of the partitions with the place of each training example, from 0.

    Returns:
        The partition.

    Raises:
        DataError: the partitions are not a division of the training examples, or the partitioner
            has no data set and Hugging Face's library is not installed.
    """
    if row is None:
        row = "fedbb row"
        partitioner.dataset = _rows_to_divide(data, row)
    owners = np.full(len(data.train), -1, dtype=np.int64)
    for client in range(int(partitioner.num_partitions)):
        rows = np.asarray(partitioner.load_partition(client)[row], dtype=np.int64)
        if len(rows) == 0:
            raise DataError(f"partition {client} is empty; every client needs an example")
        if rows.min() < 0 or rows.max() >= len(owners):
            raise DataError(
                f"partition {client} has rows {rows.min()} to {rows.max()}; the data has "
                f"{len(owners)} training examples"
            )
        if (owners[rows] >= 0).any() or len(np.unique(rows)) < len(rows):
            raise DataError(f"partition {client} has a row that is in a partition already")
        owners[rows] = client
    if (owners < 0).any():
        raise DataError(f"row {int(np.argmin(owners))} is in no partition")
    kind = type(partitioner).__name__
    return measured(owners, data.train.labels, {"kind": "flwr", "partitioner": kind})


def _rows_to_divide(data: Dataset, row: str) -> Any:
    """Return labels, columns and numbers of the training examples for a partitioner."""
    try:
        from datasets import Dataset as HuggingFaceDataset
    except ImportError as error:
        raise DataError(
            "partitioners of flwr-datasets need its library: pip install flwr-datasets"
        ) from error
    labels = data.train.labels.tolist()
    columns = {name: values.tolist() for name, values in data.train.columns.items()}
    numbers = list(range(len(labels)))
    return HuggingFaceDataset.from_dict({**columns, "label": labels, row: numbers})


def from_file(data: Dataset, path: str | PathLike[str]) -> Partition:
    """Read a saved partition of this data, such as `partition.json` of a run.

    Args:
        data: the data set; its labels must be those that the partition was made for.
        path: the file.

    Returns:
        The partition.

    Raises:
        DataError: the file cannot be read, or is of other data.
    """
    return _divide(data, Rule("file", path=fspath(path)))


def _divide(data: Dataset, rule: Rule) -> Partition:
    if not isinstance(data, Dataset):
        raise DataError(
            f"data is of type {type(data).__name__}; needed: a fedbb.Dataset, as "
            "fedbb.Dataset.from_arrays or from_torch makes it"
        )
    if not isinstance(rule.clients, Integral | None):
        raise DataError(f"clients is {rule.clients!r}; it must be a whole number")
    return divide(rule, data.train, data.task)
