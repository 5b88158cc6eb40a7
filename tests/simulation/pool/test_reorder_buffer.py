import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.simulation.pool.reorder_buffer import Parking


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(0, 4), st.randoms())
def test_every_message_comes_back_once_in_any_order(messages, limit, random):
    with Parking(limit) as parking:
        for number, message in enumerate(messages):
            parking.put(number, message)
        for number in random.sample(range(len(messages)), len(messages)):
            assert number in parking
            assert parking.take(number) == messages[number]
            assert number not in parking


def test_what_came_and_went_leaves_room_on_disk():
    with Parking(limit=1) as parking:
        for start in range(0, 30, 3):
            for number in range(start, start + 3):
                parking.put(number, b"x" * 1000)
            for number in range(start, start + 3):
                parking.take(number)
        assert parking._file.seek(0, 2) == 0


def test_what_was_never_put_cannot_be_taken():
    with pytest.raises(KeyError):
        Parking(limit=1).take(3)
