"""A round's record as measures with flat names, the same for every tracker."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedbb.trackers.base import ROUND

LONGEST = 60

Measure = tuple[str, float]


def measures(record: Mapping[str, Any], classes: Sequence[str]) -> dict[str, float]:
    """Return a round's defined figures by name; `classes` are names made by `class_names`.

    The names are `test/f1`, `test/recall/<class>`, `clients/weight/<client>`, `train/loss` and so
    on; `round` comes last.
    """
    found = [
        *_scores(record["scores"], classes),
        *_clients(record["clients"]),
        *((f"seconds/{part}", value) for part, value in record.get("seconds", {}).items()),
        (ROUND, record["round"]),
    ]
    return _defined(found)


def summary_measures(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return round and macro figures of the best and the final round, as in `best/test/f1`."""
    found: list[Measure] = []
    for which in ("best", "final"):
        found.append((f"{which}/round", summary[which]["round"]))
        for part, scores in summary[which]["scores"].items():
            macro = scores["macro"]
            found += [(f"{which}/{part}/{name}", value) for name, value in macro.items()]
    return _defined(found)


def class_names(classes: Iterable[str]) -> list[str]:
    """Return names of letters, digits, `-` and `_`, no two alike, for classes of any name.

    >>> class_names(["cat", "Pleural Thickening", "a/b", "a.b", "…"])
    ['cat', 'Pleural_Thickening', 'a_b', 'a_b-3', 'class-4']
    """
    names: list[str] = []
    for number, original in enumerate(classes):
        name = clean(original) or f"class-{number}"
        while name in names:
            name = f"{name}-{number}"
        names.append(name)
    return names


def clean(text: str, longest: int = LONGEST) -> str:
    """Return text cut to what every tracker takes as a name; empty where nothing can be kept."""
    # Letters lose their accents rather than become a mere `_`.
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9-]+", "_", plain).strip("_")[:longest]


def _scores(scores: Mapping[str, Any], classes: Sequence[str]) -> Iterator[Measure]:
    for part, found in scores.items():
        for name, value in found["macro"].items():
            yield f"{part}/{name}", value
        for name, vector in found["per_class"].items():
            for which, value in zip(classes, vector, strict=True):
                yield f"{part}/{name}/{which}", value


def _clients(clients: Sequence[Mapping[str, Any]]) -> Iterator[Measure]:
    # Where aggregation is secure, the server knows only who took part.
    told = [client for client in clients if client.get("train_loss") is not None]
    for client in told:
        for name in ("weight", "steps", "train_loss"):
            yield f"clients/{name}/{client['client']}", client[name]
    if len(told) == len(clients):
        yield "train/loss", sum(client["weight"] * client["train_loss"] for client in told)


def _defined(found: Iterable[tuple[str, float | None]]) -> dict[str, float]:
    return {
        name: float(value) for name, value in found if value is not None and math.isfinite(value)
    }
