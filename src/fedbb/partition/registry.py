"""Every way to divide a data set by name, and from a rule to a partition."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fedbb._util.constraints import STRICT_TABLE, Count, Positive, Seed
from fedbb._util.names import nearest
from fedbb._util.plugins import load_plugin, plugin_names
from fedbb.data.dataset import Examples
from fedbb.errors import DataError, FedbbError
from fedbb.partition.algorithms import (
    HolderChoice,
    assign_groups,
    assign_shards,
    by_value,
    dominant_label,
    iid_parts,
    label_skew,
    limit_classes,
    quantity_skew,
)
from fedbb.partition.label_distance import measure_skew
from fedbb.partition.partition import Partition, group_owners
from fedbb.records import IntArray, Task

MIN_SAMPLES = 10
"""Samples that every client of a skewed partition has, unless its rule says otherwise."""


@dataclass(frozen=True)
class Rule:
    """How to divide the samples among clients: the section `data.partition` of a recipe.

    Each kind takes some of the fields: the skews `clients`, `concentration` and `min_samples`; even
    `clients`; pathological `clients`, `classes_per_client` and `holders`; shards `clients` and
    `shards_per_client`; column a `column`, and `clients` to assign its values to that many; file a
    `path`; a kind that an installed package registers `clients` and `options`.

    Attributes:
        kind: One of `KINDS`, "file", or a kind that an installed package registers as
            `fedbb.partitions`.
        clients: Number of clients.
        concentration: Concentration of the Dirichlet distribution; the smaller, the more uneven.
        min_samples: Samples that every client must have; the skews are drawn again until it holds.
            `MIN_SAMPLES` if None.
        seed: Seed of the draw; 0 if None, or the seed of the recipe in a run.
        column: Column of the data whose values tell the clients apart.
        path: File of a saved partition.
        classes_per_client: Number of classes of each client.
        holders: Whether all classes have about equally many clients ("even", also if None), or
            clients draw theirs as in NIID-Bench ("random").
        shards_per_client: Number of shards of each client.
        options: Arguments of the function that a package registers.
    """

    __pydantic_config__: ClassVar = STRICT_TABLE

    kind: str = "label-skew"
    clients: Count | None = None
    concentration: Positive | None = None
    min_samples: Count | None = None
    seed: Seed | None = None
    column: str | None = None
    path: str | None = None
    classes_per_client: Count | None = None
    holders: HolderChoice | None = None
    shards_per_client: Count | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def resolve(self, seed: int = 0) -> Rule:
        """Return the rule with a seed and a minimum of samples in place of None.

        Args:
            seed: The seed of a rule that has none.
        """
        return replace(
            self,
            seed=seed if self.seed is None else self.seed,
            min_samples=MIN_SAMPLES if self.min_samples is None else self.min_samples,
        )


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
    rule = rule.resolve()
    if rule.kind == "file":
        _check_fields(rule, ("path",), ())
        assert rule.path is not None
        return Partition.load(rule.path).check(examples.labels)
    kind = find_kind(rule.kind)
    _check_fields(rule, kind.needs, kind.takes)
    if len(examples) == 0:
        raise DataError("there are no samples to divide")
    return measured(kind.owners(rule, examples, task), examples.labels, _record(rule, kind))


def find_kind(name: str) -> Kind:
    """Return the way to divide of this name; a package that registers it is not yet imported.

    Raises:
        DataError: There is none; the message names the nearest.
    """
    if name in KINDS:
        return KINDS[name]
    registered = plugin_names("fedbb.partitions")
    if name not in registered:
        known = [*KINDS, "file", *registered]
        raise DataError(f"unknown partition {name!r}" + nearest(name, known))
    return Kind((), ("clients", "options"), _by_plugin)


def measured(
    owners: IntArray, labels: npt.NDArray[Any], rule: Mapping[str, str | int | float]
) -> Partition:
    """Return the partition of these owners, with the measured skew beside its rule."""
    made = group_owners(owners, int(owners.max()) + 1, labels, rule)
    skew = round(measure_skew(labels, made.clients), 6)
    return replace(made, rule={**rule, "measured_skew": skew})


def _check_fields(rule: Rule, needs: tuple[str, ...], takes: tuple[str, ...]) -> None:
    """Refuse a rule that lacks a field of its kind, or has one that its kind would ignore."""
    for name in _FIELDS:
        given = getattr(rule, name) not in (None, {})
        if name in needs and not given:
            raise DataError(f"partition {rule.kind} needs {name}")
        if given and name not in needs + takes:
            allowed = ", ".join(needs + takes)
            raise DataError(f"partition {rule.kind} takes {allowed}; {name} is none of them")


def _record(rule: Rule, kind: Kind) -> dict[str, str | int | float]:
    """Return what of a rule its kind went by, for the saved file."""
    used = {"kind", "seed", *kind.needs, *kind.takes}
    values = {key: value for key, value in asdict(rule).items() if key in used}
    if "options" in values:
        values["options"] = json.dumps(rule.options, sort_keys=True) if rule.options else None
    return {key: value for key, value in values.items() if value is not None}


def _by_labels(rule: Rule, examples: Examples, task: Task) -> IntArray:
    return label_skew(_one_label(rule, examples, task), *_skew(rule))


def _one_label(rule: Rule, examples: Examples, task: Task) -> IntArray:
    """Return the class by which each example is assigned."""
    if task is Task.MULTILABEL:
        return dominant_label(examples.labels, _seed(rule))
    return examples.labels


def _by_quantity(rule: Rule, examples: Examples, task: Task) -> IntArray:
    return quantity_skew(len(examples), *_skew(rule))


def _skew(rule: Rule) -> tuple[int, float, int, int]:
    assert rule.clients is not None
    assert rule.concentration is not None
    assert rule.min_samples is not None
    return rule.clients, rule.concentration, rule.min_samples, _seed(rule)


def _seed(rule: Rule) -> int:
    assert rule.seed is not None
    return rule.seed


def _evenly(rule: Rule, examples: Examples, task: Task) -> IntArray:
    assert rule.clients is not None
    return iid_parts(len(examples), rule.clients, _seed(rule))


def _by_classes(rule: Rule, examples: Examples, task: Task) -> IntArray:
    assert rule.clients is not None
    assert rule.classes_per_client is not None
    labels = _one_label(rule, examples, task)
    return limit_classes(
        labels, rule.clients, rule.classes_per_client, _seed(rule), rule.holders or "even"
    )


def _by_shards(rule: Rule, examples: Examples, task: Task) -> IntArray:
    assert rule.clients is not None
    assert rule.shards_per_client is not None
    labels = _one_label(rule, examples, task)
    return assign_shards(labels, rule.clients, rule.shards_per_client, _seed(rule))


def _by_column(rule: Rule, examples: Examples, task: Task) -> IntArray:
    assert rule.column is not None
    if rule.column not in examples.columns:
        raise DataError(
            f"the data has no column {rule.column!r}" + nearest(rule.column, examples.columns)
        )
    values = examples.columns[rule.column]
    if rule.clients is None:
        return by_value(values)
    return assign_groups(values, rule.clients, _seed(rule))


def _by_plugin(rule: Rule, examples: Examples, task: Task) -> IntArray:
    """Return the owners that the function of an installed package gives, checked."""
    clients = {} if rule.clients is None else {"clients": rule.clients}
    try:
        function = load_plugin("fedbb.partitions", rule.kind)
        owners = np.asarray(function(examples, task, seed=_seed(rule), **clients, **rule.options))
    except FedbbError:
        raise
    except Exception as error:
        raise DataError(
            f"partition {rule.kind} cannot be made with {rule.options}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if owners.shape != (len(examples),) or owners.dtype.kind not in "iu" or owners.min() < 0:
        raise DataError(
            f"partition {rule.kind} gives {owners.dtype} of shape {owners.shape}; it must give the "
            f"client of each of the {len(examples)} examples, from 0"
        )
    number = int(owners.max()) + 1 if rule.clients is None else rule.clients
    if np.unique(owners).tolist() != list(range(number)):
        raise DataError(
            f"partition {rule.kind} must give every client from 0 to {number - 1} some examples, "
            "and no other client any"
        )
    return owners.astype(np.int64)


KINDS: Mapping[str, Kind] = {
    "label-skew": Kind(("clients", "concentration"), ("min_samples",), _by_labels),
    "quantity-skew": Kind(("clients", "concentration"), ("min_samples",), _by_quantity),
    "even": Kind(("clients",), (), _evenly),
    "pathological": Kind(("clients", "classes_per_client"), ("holders",), _by_classes),
    "shards": Kind(("clients", "shards_per_client"), (), _by_shards),
    "column": Kind(("column",), ("clients",), _by_column),
}

# `min_samples` is never None here: `resolve` sets it for every kind.
_FIELDS = (
    "clients",
    "concentration",
    "column",
    "path",
    "classes_per_client",
    "holders",
    "shards_per_client",
    "options",
)
