import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import DataError
from fedbb.partition.iid import even_parts


@given(samples=st.integers(1, 300), clients=st.integers(1, 40), seed=st.integers(0, 5))
def test_sizes_differ_by_one_at_most(samples, clients, seed) -> None:
    if clients > samples:
        with pytest.raises(DataError, match=f"allowed are 1 to {samples}"):
            even_parts(samples, clients, seed)
        return
    owners = even_parts(samples, clients, seed)
    sizes = np.bincount(owners, minlength=clients)
    assert len(owners) == samples
    assert len(sizes) == clients
    assert np.ptp(sizes) <= 1
    assert np.array_equal(owners, even_parts(samples, clients, seed))


def test_samples_are_shuffled_by_the_seed() -> None:
    first, second = even_parts(100, 2, 0), even_parts(100, 2, 1)
    assert not np.array_equal(first, np.arange(100) % 2)
    assert not np.array_equal(first, second)


def test_no_clients_are_refused() -> None:
    with pytest.raises(DataError, match="clients is 0"):
        even_parts(10, 0, 0)
