import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import DivergedError
from fedbb.records import ClientUpdate, ModelState
from fedbb.simulation.pool.protocol import (
    SpillBuffer,
    pack_error,
    pack_state,
    pack_update,
    unpack_state,
    unpack_update,
)
from fedbb.simulation.pool.protocol import unpack as unpack_message
from fedbb.state import digest

STATE = ModelState(
    {
        "half": torch.tensor([1.5, -0.0], dtype=torch.bfloat16),
        "scalar": torch.tensor(3.0, dtype=torch.float64),
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "empty": torch.empty(0, 2),
    },
    {"steps": torch.tensor(7), "flags": torch.tensor([True, False])},
)


def test_a_state_comes_back_to_the_bit_in_every_type():
    sent = {"step.shift": torch.tensor([0.5, -0.0]), "step.none": torch.zeros(0)}
    state, broadcast = unpack_state(pack_state(STATE, sent))
    assert digest(state) == digest(STATE)
    assert digest(ModelState(broadcast, {})) == digest(ModelState(sent, {}))


@pytest.mark.parametrize("kept", [True, False])
def test_an_update_comes_back_whole(kept):
    found = {"loss.mean": torch.tensor(0.5, dtype=torch.float64)}
    update = ClientUpdate(3, STATE, 8, 12.5, 0.25, 1.5, found)
    back, remembers = unpack_update(pack_update(update, kept=kept))
    assert remembers is kept
    assert digest(back.state) == digest(STATE)
    facts = ("client", "steps", "effective_steps", "train_loss", "seconds")
    assert [getattr(back, name) for name in facts] == [3, 8, 12.5, 0.25, 1.5]


def test_an_error_comes_back_as_itself_with_its_place():
    try:
        raise DivergedError("round 2, client 1: the loss is nan")
    except DivergedError as error:
        back = unpack_message(pack_error(error))
    assert isinstance(back, DivergedError)
    assert str(back) == "round 2, client 1: the loss is nan"
    assert "test_protocol.py" in back.__notes__[0]


def test_an_error_that_does_not_travel_is_told_in_words():
    class LocalError(Exception):
        pass

    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(LocalError("x"))
    back = unpack_message(pack_error(LocalError("it broke")))
    assert isinstance(back, RuntimeError)
    assert "it broke" in str(back)


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(0, 4), st.randoms())
def test_every_message_comes_back_once_in_any_order(messages, limit, random):
    with SpillBuffer(limit) as reorder_buffer:
        for number, message in enumerate(messages):
            reorder_buffer.put(number, message)
        for number in random.sample(range(len(messages)), len(messages)):
            assert number in reorder_buffer
            assert reorder_buffer.take(number) == messages[number]
            assert number not in reorder_buffer


def test_what_came_and_went_leaves_room_on_disk():
    with SpillBuffer(limit=1) as reorder_buffer:
        for start in range(0, 30, 3):
            for number in range(start, start + 3):
                reorder_buffer.put(number, b"x" * 1000)
            for number in range(start, start + 3):
                reorder_buffer.take(number)
        assert reorder_buffer._file.seek(0, 2) == 0


def test_what_was_never_put_cannot_be_taken():
    with pytest.raises(KeyError):
        SpillBuffer(limit=1).take(3)
