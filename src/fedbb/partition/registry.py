"""Every way to divide a data set by name, and from a rule to a partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from os import PathLike

from fedbb._util.names import nearest
from fedbb.data.dataset import Examples
from fedbb.errors import DataError
from fedbb.partition.dirichlet import dominant_label, label_skew, quantity_skew
from fedbb.partition.iid import even_parts
from fedbb.partition.natural import assign_groups, by_value
from fedbb.partition.partition import Partition, from_owners
from fedbb.partition.skew import measure_skew
from fedbb.records import IntArray, Task


@dataclass(frozen=True)
class Rule:
    """How to divide the samples among clients.

    Each kind takes some of the fields: the skews `clients`, `concentration` and `min_samples` (they
    draw again until every client has that many); even `clients`; column the name of a `column`, and
    `clients` to assign its values to that many clients; file the `path` of a saved partition.
    """

    kind: str
    clients: int | None = None
    concentration: float | None = None
    min_samples: int = 10
    seed: int = 0
    column: str | None = None
    path: str | PathLike[str] | None = None


@dataclass(frozen=True)
class Kind:
    """A way to divide: the fields it needs, those it may have, and how the owners are drawn."""

    needs: tuple[str, ...]
    takes: tuple[str, ...]
    owners: Callable[[Rule, Examples, Task], IntArray]


def divide(rule: Rule, examples: Examples, task: Task) -> Partition:
    """Return the partition that a rule makes of these examples, each in exactly one client.

    Its own rule says also, as `measured_skew`, how far the clients' labels came out apart.
    """
    if rule.kind == "file":
        _check_fields(rule, ("path",), ())
        assert rule.path is not None
        return Partition.load(rule.path).check(examples.labels)
    if rule.kind not in KINDS:
        raise DataError(f"unknown partition {rule.kind!r}" + nearest(rule.kind, [*KINDS, "file"]))
    kind = KINDS[rule.kind]
    _check_fields(rule, kind.needs, kind.takes)
    if len(examples) == 0:
        raise DataError("there are no samples to divide")
    owners = kind.owners(rule, examples, task)
    made = from_owners(owners, int(owners.max()) + 1, examples.labels, _record(rule, kind))
    skew = round(measure_skew(examples.labels, made.clients), 6)
    return replace(made, rule={**made.rule, "measured_skew": skew})


def _check_fields(rule: Rule, needs: tuple[str, ...], takes: tuple[str, ...]) -> None:
    """Refuse a rule that lacks a field of its kind, or has one that its kind would ignore."""
    for name in ("clients", "concentration", "column", "path"):
        given = getattr(rule, name) is not None
        if name in needs and not given:
            raise DataError(f"partition {rule.kind} needs {name}")
        if given and name not in needs + takes:
            allowed = ", ".join(needs + takes)
            raise DataError(f"partition {rule.kind} takes {allowed}; {name} is none of them")


def _record(rule: Rule, kind: Kind) -> dict[str, str | int | float]:
    """Return what of a rule its kind went by, for the saved file."""
    used = {"kind", "seed", *kind.needs, *kind.takes}
    return {key: value for key, value in asdict(rule).items() if key in used and value is not None}


def _by_labels(rule: Rule, examples: Examples, task: Task) -> IntArray:
    labels = examples.labels
    if task is Task.MULTILABEL:
        labels = dominant_label(labels, rule.seed)
    return label_skew(labels, *_skew(rule))


def _by_quantity(rule: Rule, examples: Examples, task: Task) -> IntArray:
    return quantity_skew(len(examples), *_skew(rule))


def _skew(rule: Rule) -> tuple[int, float, int, int]:
    assert rule.clients is not None
    assert rule.concentration is not None
    return rule.clients, rule.concentration, rule.min_samples, rule.seed


def _evenly(rule: Rule, examples: Examples, task: Task) -> IntArray:
    assert rule.clients is not None
    return even_parts(len(examples), rule.clients, rule.seed)


def _by_column(rule: Rule, examples: Examples, task: Task) -> IntArray:
    assert rule.column is not None
    if rule.column not in examples.columns:
        raise DataError(
            f"the data has no column {rule.column!r}" + nearest(rule.column, examples.columns)
        )
    values = examples.columns[rule.column]
    if rule.clients is None:
        return by_value(values)
    return assign_groups(values, rule.clients, rule.seed)


KINDS: Mapping[str, Kind] = {
    "label-skew": Kind(("clients", "concentration"), ("min_samples",), _by_labels),
    "quantity-skew": Kind(("clients", "concentration"), ("min_samples",), _by_quantity),
    "even": Kind(("clients",), (), _evenly),
    "column": Kind(("column",), ("clients",), _by_column),
}
