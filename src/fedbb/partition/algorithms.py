"""Which client each sample goes to: Dirichlet shares, few classes per client, shards, groups.

Label skew draws from numpy's legacy generator in the order of the public codes (FedML, FedAlign,
MOON, NIID-Bench), so that the same seed gives the same splits; so do few classes per client with
random holders (NIID-Bench). Quantity skew draws the sizes before the order of the samples; its
splits differ from theirs.
"""

from __future__ import annotations

import heapq
import math
import random
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from fedbb.errors import DataError
from fedbb.records import FloatArray, IntArray
from fedbb.rng import stream

HolderChoice = Literal["even", "random"]
HOLDERS: tuple[HolderChoice, ...] = get_args(HolderChoice)

_LARGEST = 1e100
_SIZE_DRAWS = 10_000
_ASSIGNED = 20_000_000


def label_skew(
    labels: IntArray, clients: int, concentration: float, min_samples: int = 10, seed: int = 0
) -> IntArray:
    """Return the client of each sample; every class is split by Dirichlet shares of its own.

    A client that already holds an average number of samples gets none of the further classes. The
    split is drawn again until every client has `min_samples`.

    Args:
        labels: class numbers (N,) from 0.
        clients: number of clients.
        concentration: δ of the paper; the smaller, the more skewed.
        min_samples: least number of samples of a client.
        seed: of the draw, 0 to 2³² − 1.

    Raises:
        DataError: a value outside of its range, or a minimum that no draw reaches.
    """
    _check(len(labels), clients, concentration, min_samples, seed)
    if labels.min() < 0:
        raise DataError(f"label {int(labels.argmin())} is {labels.min()}; classes count from 0")
    rng = np.random.RandomState(seed)
    members = [np.flatnonzero(labels == label) for label in range(int(labels.max()) + 1)]
    # Enough draws for any split that is likely at all, yet an end within seconds.
    draws = min(max(_ASSIGNED // len(labels), 100), 1000)
    for _ in range(draws):
        owners, sizes = _split_classes(members, clients, concentration, rng)
        if sizes.min() >= min_samples:
            return owners
    raise _too_skewed(
        f"label-skew with concentration {concentration:g}", clients, min_samples, len(labels), draws
    )


def dominant_label(labels: npt.NDArray[Any], seed: int) -> IntArray:
    """Return for each row of labels (N, C) the class by which label skew assigns it.

    It is one of the row's positive classes, each with equal probability, or C where there is none.
    A client thus gets an image with the mean of its shares of the image's classes.
    """
    positive = labels == 1
    keys = stream(seed, "partition", "deciding class").random(labels.shape)
    chosen = np.where(positive, keys, -1.0).argmax(axis=1)
    decided = np.where(positive.any(axis=1), chosen, labels.shape[1])
    return np.asarray(decided, dtype=np.int64)


def quantity_skew(
    samples: int, clients: int, concentration: float, min_samples: int = 10, seed: int = 0
) -> IntArray:
    """Return the client of each sample; clients differ in size only, whatever the labels are.

    The arguments and errors are those of `label_skew`, with the number of samples first.
    """
    _check(samples, clients, concentration, min_samples, seed)
    rng = np.random.RandomState(seed)
    for _ in range(_SIZE_DRAWS):
        shares = _dirichlet(clients, concentration, rng)
        if shares.min() * samples < min_samples:
            continue
        sizes = _cut(shares, samples)
        # Rounding may cost a client one sample, so its size must suffice as well as its share.
        if sizes.min() >= min_samples:
            owners = np.empty(samples, dtype=np.int64)
            owners[rng.permutation(samples)] = np.repeat(np.arange(clients), sizes)
            return owners
    raise _too_skewed(
        f"quantity-skew with concentration {concentration:g}",
        clients,
        min_samples,
        samples,
        _SIZE_DRAWS,
    )


def _split_classes(
    members: list[IntArray], clients: int, concentration: float, rng: np.random.RandomState
) -> tuple[IntArray, IntArray]:
    """Return one draw: the client of each sample, and the clients' sizes."""
    samples = sum(len(places) for places in members)
    owners = np.empty(samples, dtype=np.int64)
    sizes = np.zeros(clients, dtype=np.int64)
    for places in members:
        shuffled = places.copy()
        rng.shuffle(shuffled)
        shares = _open_shares(sizes < samples / clients, concentration, rng)
        assigned = _cut(shares, len(places))
        owners[shuffled] = np.repeat(np.arange(clients), assigned)
        sizes += assigned
    return owners, sizes


def _open_shares(
    is_open: npt.NDArray[np.bool_], concentration: float, rng: np.random.RandomState
) -> FloatArray:
    """Return Dirichlet shares, those of full clients set to zero and the rest scaled to one."""
    shares = _dirichlet(len(is_open), concentration, rng) * is_open
    total = shares.sum()
    if total > 0:
        return np.asarray(shares / total)
    return _all_to_one(np.flatnonzero(is_open), len(is_open), rng)


def _dirichlet(clients: int, concentration: float, rng: np.random.RandomState) -> FloatArray:
    """Return shares that sum to one, also where floats cannot hold the gamma draws behind them."""
    # Beyond this the gamma draws would overflow, and the shares are equal to the last digit anyway.
    shares = rng.dirichlet(np.full(clients, min(concentration, _LARGEST)))
    if np.isfinite(shares).all():
        return shares
    return _all_to_one(np.arange(clients), clients, rng)


def _all_to_one(chosen: IntArray, clients: int, rng: np.random.RandomState) -> FloatArray:
    """Return the limit of the shares as δ → 0: one of the chosen clients, at random, has all."""
    shares = np.zeros(clients)
    shares[rng.choice(chosen)] = 1.0
    return shares


def _cut(shares: FloatArray, number: int) -> IntArray:
    """Return how many of `number` each client gets: cuts rounded down, the rest to the last."""
    ends = (np.cumsum(shares) * number).astype(np.int64)[:-1]
    return np.diff(ends, prepend=0, append=number)


def _check(samples: int, clients: int, concentration: float, min_samples: int, seed: int) -> None:
    if clients < 1 or min_samples < 1:
        raise DataError(
            f"clients is {clients}, min_samples is {min_samples}; both must be at least 1"
        )
    if not (concentration > 0 and math.isfinite(concentration)):
        raise DataError(f"concentration is {concentration}; it must be above 0 and finite")
    if not 0 <= seed < 2**32:
        raise DataError(f"the partition's seed is {seed}; allowed: 0 to {2**32 - 1}")
    if clients * min_samples > samples:
        raise DataError(
            f"{clients} clients of at least {min_samples} samples need "
            f"{clients * min_samples}; there are {samples}"
        )


def _too_skewed(what: str, clients: int, min_samples: int, samples: int, draws: int) -> DataError:
    return DataError(
        f"{what} left one of {clients} clients with fewer than {min_samples} of {samples} samples "
        f"in all of {draws} draws; raise concentration, lower min_samples, take fewer clients, or "
        "another seed"
    )


def limit_classes(
    labels: IntArray,
    clients: int,
    classes_per_client: int,
    seed: int,
    holders: HolderChoice = "even",
) -> IntArray:
    """Return the client of each sample; every client has samples of a fixed number of classes.

    The samples of a class are shuffled and divided evenly among its holders.

    Args:
        labels: class numbers (N,).
        clients: number of clients.
        classes_per_client: number of classes of each client.
        seed: of the draw.
        holders: "even": one client after another takes the classes with the fewest holders so far,
            equals at random, so that the numbers of holders differ by one at most. "random": client
            k takes class k, counted round, and draws the others; the split "#C=k" of NIID-Bench,
            sample for sample with the same seed.

    Raises:
        DataError: more classes per client than there are, fewer places than classes, with random
            holders fewer clients than classes, or a class with fewer samples than holders.
    """
    present, numbers = np.unique(labels, return_inverse=True)
    _check_limits(clients, classes_per_client, len(present), holders)
    members = [np.flatnonzero(numbers == label) for label in range(len(present))]
    if holders == "even":
        rng = stream(seed, "partition", "pathological")
        held = _even_holders(clients, classes_per_client, len(present), rng)
        shuffled = [rng.permutation(places) for places in members]
    else:
        held = _random_holders(clients, classes_per_client, len(present), seed)
        legacy = np.random.RandomState(seed)
        shuffled = [legacy.permutation(places) for places in members]
    owners = np.empty(len(labels), dtype=np.int64)
    for label, (places, owned_by) in enumerate(zip(shuffled, held, strict=True)):
        if len(places) < len(owned_by):
            raise DataError(
                f"class {present[label]} has {len(places)} samples for the {len(owned_by)} clients "
                "that are to hold it; take fewer clients or fewer classes per client"
            )
        for client, part in zip(owned_by, np.array_split(places, len(owned_by)), strict=True):
            owners[part] = client
    return owners


def _even_holders(
    clients: int, per_client: int, classes: int, rng: np.random.Generator
) -> list[list[int]]:
    """Return the clients of each class, in numbers that differ by one at most."""
    holders: list[list[int]] = [[] for _ in range(classes)]
    for client in range(clients):
        order = rng.permutation(classes)
        held = np.array([len(holders[label]) for label in order])
        for label in order[np.argsort(held, kind="stable")[:per_client]]:
            holders[label].append(client)
    return holders


def _random_holders(clients: int, per_client: int, classes: int, seed: int) -> list[list[int]]:
    """Return the clients of each class, drawn in NIID-Bench's order by the generator it uses."""
    rng = random.Random(seed)  # noqa: S311 - the splits of its seeds, not secrets
    holders: list[list[int]] = [[] for _ in range(classes)]
    for client in range(clients):
        held = [client % classes]
        while len(held) < per_client:
            drawn = rng.randint(0, classes - 1)
            if drawn not in held:
                held.append(drawn)
        for label in held:
            holders[label].append(client)
    return holders


def _check_limits(
    clients: int, classes_per_client: int, classes: int, holders: HolderChoice
) -> None:
    if clients < 1:
        raise DataError(f"clients is {clients}; it must be at least 1")
    if not 1 <= classes_per_client <= classes:
        raise DataError(
            f"classes_per_client is {classes_per_client}; allowed: 1 to {classes}, the number "
            "of classes in the data"
        )
    if clients * classes_per_client < classes:
        raise DataError(
            f"{clients} clients of {classes_per_client} classes cannot hold all {classes} classes; "
            "take more clients or more classes per client"
        )
    if holders not in HOLDERS:
        raise DataError(f"holders is {holders!r}; allowed: {', '.join(HOLDERS)}")
    if holders == "random" and clients < classes:
        raise DataError(
            f"random holders need a client for each of the {classes} classes; there are {clients}"
        )


def assign_shards(labels: IntArray, clients: int, shards_per_client: int, seed: int) -> IntArray:
    """Return the client of each sample; every client gets random shards of the sorted data.

    The samples are sorted by class and cut into shards of equal size (up to one sample), and each
    client gets the same number of them: the pathological split of McMahan et al. (2017).

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
    holders = stream(seed, "partition", "shards").permutation(shards) // shards_per_client
    owners = np.empty(len(labels), dtype=np.int64)
    parts = np.array_split(np.argsort(labels, kind="stable"), shards)
    for client, places in zip(holders.tolist(), parts, strict=True):
        owners[places] = client
    return owners


def iid_parts(samples: int, clients: int, seed: int) -> IntArray:
    """Return the client of each sample; sizes differ by one at most."""
    if not 1 <= clients <= samples:
        raise DataError(
            f"clients is {clients}; allowed: 1 to {samples}, the number of samples, since no "
            "client may be empty"
        )
    order = stream(seed, "partition", "even").permutation(samples)
    owners = np.empty(samples, dtype=np.int64)
    owners[order] = np.arange(samples) % clients
    return owners


def by_value(values: npt.NDArray[np.str_]) -> IntArray:
    """Return the client of each sample: each value of the column is one client, in sorted order."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def assign_groups(values: npt.NDArray[np.str_], clients: int, seed: int) -> IntArray:
    """Return the client of each sample; whole groups go to `clients` clients of balanced sizes.

    A group is all samples of one value. The largest remaining group goes to the smallest client;
    groups of equal size are taken in a random order.
    """
    groups = by_value(values)
    sizes = np.bincount(groups)
    if not 1 <= clients <= len(sizes):
        raise DataError(
            f"clients is {clients}; the column has {len(sizes)} different values, and each client "
            "needs at least one"
        )
    order = stream(seed, "partition", "column").permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    heap = [(0, client) for client in range(clients)]
    owner_of = np.empty(len(sizes), dtype=np.int64)
    for group in order:
        held, client = heap[0]
        owner_of[group] = client
        heapq.heapreplace(heap, (held + int(sizes[group]), client))
    return np.asarray(owner_of[groups])
