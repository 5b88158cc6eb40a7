import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import DataError
from fedbb.partition.natural import assign_groups, by_value

SITES = np.array(["north", "south", "north", "east", "south", "north"])


def test_each_value_is_a_client_in_sorted_order() -> None:
    assert by_value(SITES).tolist() == [1, 2, 1, 0, 2, 1]


@given(
    values=st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=80),
    clients=st.integers(1, 10),
    seed=st.integers(0, 5),
)
def test_no_value_is_on_two_clients_and_no_client_is_empty(values, clients, seed) -> None:
    array = np.array(values)
    if clients > len(set(values)):
        with pytest.raises(DataError, match="different values"):
            assign_groups(array, clients, seed)
        return
    owners = assign_groups(array, clients, seed)
    assert set(owners.tolist()) == set(range(clients))
    assert all(len(set(owners[array == value].tolist())) == 1 for value in set(values))
    assert np.array_equal(owners, assign_groups(array, clients, seed))


def test_many_small_values_give_balanced_clients() -> None:
    patients = np.repeat(np.arange(200), np.arange(200) % 7 + 1).astype(str)
    sizes = np.bincount(assign_groups(patients, 5, seed=0))
    assert np.ptp(sizes) <= 1


def test_groups_of_equal_size_are_assigned_by_the_seed() -> None:
    patients = np.arange(40).astype(str)
    assigned = [assign_groups(patients, 4, seed).tolist() for seed in (0, 0, 1)]
    assert assigned[0] == assigned[1] != assigned[2]
