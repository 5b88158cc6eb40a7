"""Clients with few classes: a fixed number of classes each, or shards of the sorted data."""

from __future__ import annotations

import numpy as np

from fedbb.errors import DataError
from fedbb.records import IntArray
from fedbb.rng import stream


def limit_classes(labels: IntArray, clients: int, classes_per_client: int, seed: int) -> IntArray:
    """Return the client of each sample; every client has samples of exactly so many classes.

    One client after another takes the classes with the fewest holders so far, equals at random.
    All classes are thus held, and the numbers of their holders differ by one at most. The samples
    of a class are shuffled and divided evenly among its holders. This is the split "#C=k" of
    NIID-Bench, except that there the number of holders of a class is random and may be zero.

    Args:
        labels: class numbers (N,).
        clients: number of clients.
        classes_per_client: number of classes of each client.
        seed: of the draw.

    Raises:
        DataError: more classes per client than there are, fewer places than classes, or a class
            with fewer samples than holders.
    """
    present, numbers = np.unique(labels, return_inverse=True)
    _check_limits(clients, classes_per_client, len(present))
    rng = stream(seed, "partition", "pathological")
    holders: list[list[int]] = [[] for _ in present]
    for client in range(clients):
        order = rng.permutation(len(present))
        held = np.array([len(holders[label]) for label in order])
        for label in order[np.argsort(held, kind="stable")[:classes_per_client]]:
            holders[label].append(client)
    owners = np.empty(len(labels), dtype=np.int64)
    for label, owned_by in enumerate(holders):
        places = rng.permutation(np.flatnonzero(numbers == label))
        if len(places) < len(owned_by):
            raise DataError(
                f"class {present[label]} has {len(places)} samples for the {len(owned_by)} clients "
                "that are to hold it; take fewer clients or fewer classes per client"
            )
        for client, part in zip(owned_by, np.array_split(places, len(owned_by)), strict=True):
            owners[part] = client
    return owners


def _check_limits(clients: int, classes_per_client: int, classes: int) -> None:
    if clients < 1:
        raise DataError(f"clients is {clients}; it must be at least 1")
    if not 1 <= classes_per_client <= classes:
        raise DataError(
            f"classes_per_client is {classes_per_client}; allowed are 1 to {classes}, the number "
            "of classes in the data"
        )
    if clients * classes_per_client < classes:
        raise DataError(
            f"{clients} clients of {classes_per_client} classes cannot hold all {classes} classes; "
            "take more clients or more classes per client"
        )


def deal_shards(labels: IntArray, clients: int, shards_per_client: int, seed: int) -> IntArray:
    """Return the client of each sample; every client gets random shards of the sorted data.

    The samples are sorted by class and cut into shards of equal size (up to one sample), and each
    client is dealt the same number of them: the pathological split of McMahan et al. (2017).

    Args:
        labels: class numbers (N,).
        clients: number of clients.
        shards_per_client: number of shards of each client.
        seed: of the draw.

    Raises:
        DataError: a number below one, or more shards than samples.
    """
    shards = clients * shards_per_client
    if clients < 1 or shards_per_client < 1 or shards > len(labels):
        raise DataError(
            f"{clients} clients of {shards_per_client} shards are refused: both must be at least "
            f"1, and there are {len(labels)} samples to cut"
        )
    dealt = stream(seed, "partition", "shards").permutation(shards) // shards_per_client
    owners = np.empty(len(labels), dtype=np.int64)
    parts = np.array_split(np.argsort(labels, kind="stable"), shards)
    for client, places in zip(dealt.tolist(), parts, strict=True):
        owners[places] = client
    return owners
