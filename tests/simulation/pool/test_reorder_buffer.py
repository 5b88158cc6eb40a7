import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.simulation.pool.reorder_buffer import SpillBuffer


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
