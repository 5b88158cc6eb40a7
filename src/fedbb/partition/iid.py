"""IID clients: shuffled samples in equal parts."""

from __future__ import annotations

import numpy as np

from fedbb.errors import DataError
from fedbb.records import IntArray
from fedbb.rng import stream


def even_parts(samples: int, clients: int, seed: int) -> IntArray:
    """Return the client of each sample; sizes differ by one at most."""
    if not 1 <= clients <= samples:
        raise DataError(
            f"clients is {clients}; allowed are 1 to {samples}, the number of samples, since no "
            "client may be empty"
        )
    order = stream(seed, "partition", "even").permutation(samples)
    owners = np.empty(samples, dtype=np.int64)
    owners[order] = np.arange(samples) % clients
    return owners
