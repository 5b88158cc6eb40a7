"""The record of an inspection: all figures of the three levels, warnings and advice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from fedbb.analysis.advice import Advice
from fedbb.analysis.cases import Cases
from fedbb.analysis.classes import Classes
from fedbb.analysis.clients import Clients
from fedbb.analysis.notebook import to_html
from fedbb.analysis.settings import Settings
from fedbb.analysis.tally import Tally
from fedbb.analysis.warnings import Warning


@dataclass(frozen=True, eq=False)
class Inspection:
    """How uneven a federation is, level by level.

    `cases` and `classes` are of all clients together; `tally` has the counts of each client.
    `notes` say how the labels were read.
    """

    title: str
    tally: Tally
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
        return int(self.tally.samples.sum())

    def as_json(self) -> dict[str, Any]:
        """Return everything as values JSON can hold; what is no finite number is None."""
        plain = {field.name: as_plain(getattr(self, field.name)) for field in fields(self)}
        return {"samples": self.samples, **plain}

    def _repr_html_(self) -> str:
        return to_html(self)


def as_plain(value: Any) -> Any:
    """Return a value made of lists, tables, texts and finite numbers only."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.ndarray | np.generic):
        return as_plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): as_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
