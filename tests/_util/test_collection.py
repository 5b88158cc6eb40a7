"""The garbage collector pauses while many records are made, and only then."""

import gc

import pytest

from fedbb._util.collection import pause_collection


@pytest.fixture(autouse=True)
def collector():
    yield
    gc.enable()


def test_the_collector_runs_again_afterwards_also_after_an_error():
    with pause_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), pause_collection():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_the_user_stopped_stays_stopped():
    gc.disable()
    with pause_collection():
        pass
    assert not gc.isenabled()
