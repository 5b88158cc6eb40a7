"""From labels and clients to an inspection: the three levels of imbalance, warnings and advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedbb._util.files import finite_or_none
from fedbb._util.names import nearest
from fedbb._util.table import make_frame
from fedbb.analysis.advice import Advice, Warning, advise, find_warnings
from fedbb.analysis.label_statistics import (
    Labels,
    LabelStatistics,
    from_array,
    measure_labels,
    name_clients,
)
from fedbb.analysis.measures import (
    Cases,
    Classes,
    Clients,
    Settings,
    measure_cases,
    measure_classes,
    measure_clients,
)
from fedbb.analysis.tables import to_html
from fedbb.data.dataset import Examples
from fedbb.errors import DataError
from fedbb.imbalance import Values, to_array
from fedbb.partition.registry import Rule, divide
from fedbb.records import IntArray

if TYPE_CHECKING:
    import pandas as pd

PAPER = Settings()


@dataclass(frozen=True, eq=False)
class Inspection:
    """How imbalanced the labels of a federation are, level by level.

    Attributes:
        title: what was inspected.
        statistics: counts by client and class, names of classes and clients.
        settings: the hyper-parameters that were assumed.
        cases: positives against negatives of each class, over all clients.
        classes: classes against each other, over all clients.
        clients: clients against each other.
        warnings: what is likely to go wrong.
        advice: hyper-parameters by rule, with reasons.
        notes: how the labels were read.
    """

    title: str
    statistics: LabelStatistics
    settings: Settings
    cases: Cases
    classes: Classes
    clients: Clients
    warnings: tuple[Warning, ...]
    advice: Advice
    notes: tuple[str, ...] = ()

    @property
    def samples(self) -> int:
        """Number of samples of all clients."""
        return int(self.statistics.samples.sum())

    def as_json(self) -> dict[str, Any]:
        """Return everything as values JSON can hold; what is not a finite number is None."""
        # Files of before call the statistics by client and class the tally.
        keys = {"statistics": "tally"}
        names = [field.name for field in fields(self)]
        plain = {keys.get(name, name): finite_or_none(getattr(self, name)) for name in names}
        return {"samples": self.samples, **plain}

    def to_frame(self, level: Literal["clients", "classes", "counts"] = "clients") -> pd.DataFrame:
        """Return one level as a frame of pandas, with the names of clients and classes.

        Args:
            level: "clients" for a row of figures for each client, "classes" for a row for each
                class, or "counts" for the positive cases of each client (row) and class (column).

        Raises:
            ValueError: there is no such level.
            ImportError: pandas is not installed.
        """
        held, cases, clients = self.statistics, self.cases, self.clients
        reading = self.settings.reading
        figures: dict[str, Any] = {
            "samples": clients.samples,
            "absent_classes": clients.absent,
            "distance": clients.distance,
            "dispersion": clients.dispersions[reading],
            "fedavg_weight": clients.by_size,
            "cbr_weight": clients.weights[reading],
            "loss_weight": clients.loss_weight,
        }
        if level == "counts":
            figures = dict(zip(held.classes, held.positive.T, strict=True))
        elif level == "classes":
            columns = ("positive", "negative", "effective_positive", "alpha_positive")
            figures = {name: getattr(cases, name) for name in columns}
        elif level != "clients":
            raise ValueError(f"level is {level!r}; allowed: clients, classes and counts")
        names, what = (held.classes, "class") if level == "classes" else (held.clients, "client")
        values = [array.tolist() for array in figures.values()]
        rows = [dict(zip(figures, row, strict=True)) for row in zip(*values, strict=True)]
        return make_frame(rows, names, what)

    def _repr_html_(self) -> str:
        return to_html(self)


@dataclass(frozen=True, eq=False)
class ClientAssignment:
    """The client of each sample (N,) by number, and its patient where that is known."""

    clients: tuple[str, ...]
    owners: IntArray
    patients: IntArray | None = None


def inspect(
    data: Values | Labels | None = None,
    clients: Values | Rule | str | None = None,
    *,
    labels: Values | Labels | str | Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    patients: Values | str | None = None,
    settings: Settings = PAPER,
) -> Inspection:
    """Return how imbalanced these labels are: cases, classes and clients, warnings and advice.

    >>> found = inspect(["cat", "dog", "cat"], clients=["a", "a", "b"])
    >>> found.statistics.classes
    ('cat', 'dog')
    >>> found.statistics.positive
    array([[1., 1.],
           [1., 0.]])

    Args:
        data: the labels: class numbers or names (N,), or 0, 1 and NaN or −1 for unknown (N, C): a
            list, an array, a tensor, or a column or frame of pandas. Or a frame with more columns,
            of which `labels`, `clients` and `patients` are then names.
        clients: the client of each sample (N,), or a rule to divide them by; None is one client.
            With a frame: the column of the clients.
        labels: with a frame: the column of class names, or several columns of 0 and 1. Without
            `data`: the labels themselves.
        classes: names of the classes; by default those of text labels or of a frame's columns,
            else numbers.
        patients: the patient of each sample (N,), to see whether clients share any; with a frame:
            the column of the patients.
        settings: the hyper-parameters that PNB and CBR are shown with.

    Returns:
        The figures of the three levels, warnings and advice. A notebook displays it as tables;
        `to_frame()` returns them as frames of pandas, `as_json()` all of it.

    Raises:
        DataError: labels, clients or patients of a wrong shape or with values that are not allowed,
            or a column that the frame does not have.
    """
    given: Any = labels
    if data is not None:
        given = data if labels is None else _column(data, labels)
        clients = _column(data, clients) if isinstance(clients, str) else clients
        patients = _column(data, patients) if isinstance(patients, str) else patients
    if given is None or isinstance(clients, str) or isinstance(patients, str):
        raise DataError("name columns of a frame, which is the first argument; or give labels")
    if isinstance(given, str | PathLike):
        raise DataError(
            f"labels are the text {str(given)!r}; give an array, a list or a frame, such as "
            "pandas.read_csv reads; on the command line, `fedbb inspect` reads files"
        )
    known = given if isinstance(given, Labels) else from_array(given, classes=classes)
    names, owners = _assign(known, clients)
    people = None if patients is None else _numbered(patients, len(known), "patients")[1]
    return examine(known, ClientAssignment(names, owners, people), settings, title="labels")


def _column(frame: Any, names: Any) -> Any:
    """Return a column of a frame by its name, or several as a frame."""
    held = list(getattr(frame, "columns", ()))
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in held:
            what = f"no column {name!r}" if held else "no columns, so it can have no labels by name"
            raise DataError(
                f"{type(frame).__name__} has {what}" + nearest(str(name), map(str, held))
            )
    return frame[names if isinstance(names, str) else wanted]


def examine(
    labels: Labels,
    assignment: ClientAssignment,
    settings: Settings = PAPER,
    *,
    title: str,
    notes: tuple[str, ...] = (),
) -> Inspection:
    """Return the inspection of labels whose clients are known."""
    counted = measure_labels(labels, assignment.owners, assignment.clients)
    clients = measure_clients(counted, settings)
    shared = None if assignment.patients is None else count_shared(assignment)
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
    return tuple(str(client) for client in range(len(made.clients))), made.owners


def count_shared(assignment: ClientAssignment) -> IntArray:
    """Return for each client how many of its patients another client has too."""
    assert assignment.patients is not None
    pairs = np.unique(np.stack([assignment.patients, assignment.owners]), axis=1)
    homes = np.bincount(pairs[0])
    shared = homes[pairs[0]] > 1
    return np.bincount(pairs[1][shared], minlength=len(assignment.clients)).astype(np.int64)


def _measure_whole(counted: LabelStatistics, settings: Settings) -> Cases:
    positive, negative = counted.positive.sum(axis=0), counted.negative.sum(axis=0)
    return measure_cases(positive, negative, counted.task, settings)


def _assign(labels: Labels, clients: Values | Rule | None) -> tuple[tuple[str, ...], IntArray]:
    if clients is None:
        return ("all",), np.zeros(len(labels), dtype=np.int64)
    if isinstance(clients, Rule):
        return divide_labels(labels, clients)
    return _numbered(clients, len(labels), "clients")


def _numbered(values: Values, samples: int, what: str) -> tuple[tuple[str, ...], IntArray]:
    try:
        array = to_array(values)
    except ValueError as error:
        raise DataError(f"{what}: {error}") from error
    if array.shape != (samples,):
        raise DataError(f"{what} have shape {array.shape}; {samples} labels need ({samples},)")
    missing = np.isnan(array) if array.dtype.kind == "f" else np.zeros(samples, dtype=bool)
    if missing.any():
        raise DataError(f"{what}: sample {int(missing.argmax())} has none")
    return name_clients(array)
