import pytest

from fedbb.errors import ReplyError
from fedbb.secagg.flower.serde import pack_message, unpack_message


def test_a_message_comes_back_as_it_was():
    message = unpack_message(pack_message("keys", b"\x00data\xff", 2))
    assert (message.stage, message.data) == ("keys", b"\x00data\xff")
    assert message.state is None
    assert message.state_round is None


@pytest.mark.parametrize("key", ["letter", "facts"])
def test_a_message_without_one_of_its_records_is_refused_by_name(key):
    broken = pack_message("keys", b"data", 2)
    del broken[key]
    with pytest.raises(ReplyError, match=key):
        unpack_message(broken)
