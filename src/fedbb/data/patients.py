"""Patients on one side of a split only."""

from __future__ import annotations

import numpy as np

from fedbb.data.dataset import Examples
from fedbb.errors import DataError


def refuse_shared_patients(train: Examples, test: Examples, name: str) -> None:
    """Raise DataError if somebody's images are both trained and tested on."""
    both = np.intersect1d(train.columns["patient"], test.columns["patient"])
    if len(both):
        raise DataError(
            f"{name} data: patient {both[0]} is in the training and in the test part "
            f"({len(both)} such patients); scores would be too good"
        )
