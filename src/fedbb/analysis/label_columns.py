"""Which columns of a CSV file hold labels, clients, patients and row names, given or guessed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedbb._util.names import nearest
from fedbb.data.label_policy import CERTAIN, UNCERTAIN, Policy
from fedbb.data.sets.chexpert import CLASSES
from fedbb.errors import DataError
from fedbb.records import Task

CHEXPERT = "Enlarged Cardiomediastinum"
"""A column that only CheXpert's table has; its blanks and −1 follow the paper's policy."""

_CLASS_NAMES = ("finding labels", "label", "labels", "class", "target")
_IDENTITIES = ("image index", "path", "image", "image_id", "filename")
_PATIENTS = ("patient id", "patient_id", "patient", "subject_id")
_MARKS = {*CERTAIN, *UNCERTAIN}
NEARLY = 0.9


@dataclass(frozen=True)
class Layout:
    """The columns of a CSV file and how to read them; what is None or empty is guessed.

    Attributes:
        labels: columns of 0 and 1, or a single column of class names.
        clients: column of the clients.
        patient: column of the patients; an empty text means there is none.
        identity: column that names each row; an empty text means there is none.
        task: multi-class or multi-label, where a single column leaves it open.
        uncertain: what −1 in a 0/1 column means; by default "zeros" for CheXpert's table and
            "refuse" for all others.
        blank: what a blank in a 0/1 column means; the default is that of `uncertain`.
        separator: text between several class names in one value.
        nothing: class names that stand for no class.
    """

    labels: tuple[str, ...] = ()
    clients: str | None = None
    patient: str | None = None
    identity: str | None = None
    task: Task | None = None
    uncertain: Policy | None = None
    blank: Policy | None = None
    separator: str = "|"
    nothing: tuple[str, ...] = ("No Finding",)


def complete(
    layout: Layout, header: tuple[str, ...], rows: Sequence[Sequence[str]], where: str
) -> Layout:
    """Return the layout with every column known, from a header and the first rows below it."""
    asked = [layout.clients, layout.patient, layout.identity, *layout.labels]
    for name in asked:
        if name and name not in header:
            raise DataError(f"{where}: no column {name!r}" + nearest(name, header))
    policy: Policy = "zeros" if CHEXPERT in header else "refuse"
    layout = replace(
        layout,
        patient=_first(header, _PATIENTS) if layout.patient is None else layout.patient or None,
        identity=_first(header, _IDENTITIES) if layout.identity is None else layout.identity,
        uncertain=layout.uncertain or policy,
        blank=layout.blank or policy,
    )
    return layout if layout.labels else replace(layout, labels=_guess(layout, header, rows, where))


def _first(header: Sequence[str], wanted: Sequence[str]) -> str | None:
    by_name = {name.lower(): name for name in reversed(header)}
    return next((by_name[name] for name in wanted if name in by_name), None)


def _guess(
    layout: Layout, header: tuple[str, ...], rows: Sequence[Sequence[str]], where: str
) -> tuple[str, ...]:
    if CHEXPERT in header:
        return tuple(name for name in CLASSES if name in header)
    named = _first(header, _CLASS_NAMES)
    if named is not None:
        return (named,)
    taken = {layout.clients, layout.patient, layout.identity}
    marks = tuple(
        name
        for place, name in enumerate(header)
        if name not in taken and _is_marked([row[place].strip() for row in rows])
    )
    if not marks:
        raise DataError(
            f"{where}: no column of 0 and 1, and none called label or class; name by --label which "
            f"of these hold the labels: {', '.join(header)}"
        )
    return marks


def _is_marked(values: Sequence[str]) -> bool:
    """Whether values look like labels: nearly all are marks, so that a wrong one is found later."""
    written = [value for value in values if value]
    return bool(written) and sum(value in _MARKS for value in written) >= NEARLY * len(written)
