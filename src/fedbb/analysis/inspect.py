"""From labels and clients to the record of an inspection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedbb.analysis.advice import advise
from fedbb.analysis.cases import Cases, measure_cases
from fedbb.analysis.classes import measure_classes
from fedbb.analysis.clients import measure_clients
from fedbb.analysis.labels import Labels, from_array
from fedbb.analysis.record import Inspection
from fedbb.analysis.settings import Settings
from fedbb.analysis.tally import Tally, name_clients, tally
from fedbb.analysis.warnings import find_warnings
from fedbb.data.dataset import Examples
from fedbb.errors import DataError
from fedbb.partition.registry import Rule, divide
from fedbb.records import IntArray

PAPER = Settings()


@dataclass(frozen=True, eq=False)
class Holders:
    """Who holds each sample (N,), by number, and who it is of, where that is known."""

    clients: tuple[str, ...]
    owners: IntArray
    patients: IntArray | None = None


def inspect(
    labels: npt.ArrayLike | Labels,
    clients: npt.ArrayLike | Rule | None = None,
    *,
    classes: Sequence[str] | None = None,
    patients: npt.ArrayLike | None = None,
    settings: Settings = PAPER,
) -> Inspection:
    """Return how uneven these labels are: cases, classes and clients, with warnings and advice.

    Args:
        labels: class numbers or names (N,), or 0, 1 and NaN or −1 for unknown (N, C).
        clients: the client of each sample (N,), or a rule to divide them by; None is one client.
        classes: names of the classes.
        patients: the patient of each sample (N,), to see whether clients share any.
        settings: the hyper-parameters that PNB and CBR are shown with.
    """
    known = labels if isinstance(labels, Labels) else from_array(labels, classes=classes)
    names, owners = _holders(known, clients)
    people = None if patients is None else _numbered(patients, len(known), "patients")[1]
    return examine(known, Holders(names, owners, people), settings, title="labels")


def examine(
    labels: Labels,
    holders: Holders,
    settings: Settings = PAPER,
    *,
    title: str,
    notes: tuple[str, ...] = (),
) -> Inspection:
    """Return the inspection of labels whose holders are known."""
    counted = tally(labels, holders.owners, holders.clients)
    clients = measure_clients(counted, settings)
    shared = None if holders.patients is None else count_shared(holders)
    return Inspection(
        title,
        counted,
        settings,
        _measure_whole(counted, settings),
        measure_classes(counted),
        clients,
        find_warnings(counted, clients, settings, shared),
        advise(counted, clients, settings),
        notes,
    )


def divide_labels(labels: Labels, rule: Rule) -> tuple[tuple[str, ...], IntArray]:
    """Return names and numbers of the clients that a rule makes, as a run's would be."""
    array = labels.as_array()
    nothing = np.empty((len(array), 0), dtype=np.uint8)
    made = divide(rule, Examples(nothing, array), labels.task)
    owners = np.empty(len(array), dtype=np.int64)
    for client, places in enumerate(made.clients):
        owners[places] = client
    return tuple(str(client) for client in range(len(made.clients))), owners


def count_shared(holders: Holders) -> IntArray:
    """Return of each client how many of its patients another client has too."""
    assert holders.patients is not None
    pairs = np.unique(np.stack([holders.patients, holders.owners]), axis=1)
    homes = np.bincount(pairs[0])
    shared = homes[pairs[0]] > 1
    return np.bincount(pairs[1][shared], minlength=len(holders.clients)).astype(np.int64)


def _measure_whole(counted: Tally, settings: Settings) -> Cases:
    positive, negative = counted.positive.sum(axis=0), counted.negative.sum(axis=0)
    return measure_cases(positive, negative, counted.task, settings)


def _holders(
    labels: Labels, clients: npt.ArrayLike | Rule | None
) -> tuple[tuple[str, ...], IntArray]:
    if clients is None:
        return ("all",), np.zeros(len(labels), dtype=np.int64)
    if isinstance(clients, Rule):
        return divide_labels(labels, clients)
    return _numbered(clients, len(labels), "clients")


def _numbered(values: npt.ArrayLike, samples: int, what: str) -> tuple[tuple[str, ...], IntArray]:
    array = np.asarray(values)
    if array.shape != (samples,):
        raise DataError(f"{what} have shape {array.shape}; {samples} labels need ({samples},)")
    return name_clients(array)
