import pytest

from fedbb.records import ClientState
from fedbb.simulation.inline import InMemoryStore

KEPT = ClientState(optimizer={"momentum": {}})


def test_a_store_in_memory_holds_the_last_state_of_each_client():
    store = InMemoryStore()
    store.save(1, 3, ClientState())
    store.save(1, 4, KEPT)
    assert store.load(1, 4) is KEPT
    with pytest.raises(KeyError, match="client 1 is of round 4, not 3"):
        store.load(1, 3)


def test_a_state_of_a_round_that_is_not_named_is_dropped():
    store = InMemoryStore()
    store.save(1, 4, KEPT)
    store.keep_only(1, {3, 4})
    assert store.load(1, 4) is KEPT
    store.keep_only(1, {5})
    store.keep_only(2, {5})
    with pytest.raises(KeyError):
        store.load(1, 4)
