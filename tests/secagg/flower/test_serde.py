import pytest
from flwr.app import ConfigRecord

from fedbb.errors import ReplyError
from fedbb.flower.app.serde import pack_state
from fedbb.secagg.flower.serde import Attachment, pack_message, unpack_message
from fedbb.state import snapshot
from helpers.toy import toy_network


def test_a_message_comes_back_as_it_was():
    message = unpack_message(pack_message("keys", b"\x00data\xff"))
    assert (message.stage, message.data) == ("keys", b"\x00data\xff")
    assert message.state is None
    assert message.state_rounds == {}


def test_the_rounds_of_all_clients_states_come_back():
    attachment = Attachment(pack_state(snapshot(toy_network())), {0: 3, 2: 1})
    message = unpack_message(pack_message("masked", b"data", attachment))
    assert message.state_rounds == {0: 3, 2: 1}


@pytest.mark.parametrize("since", [[1], [1.0, 2.0], 3, [1, 2, 3]])
def test_rounds_of_states_that_are_not_one_integer_for_each_client_are_refused(since):
    content = pack_message("masked", b"data")
    content["facts"] = ConfigRecord({"stage": "masked", "clients": [0, 1], "since": since})
    with pytest.raises(ReplyError, match="rounds of the clients' states"):
        unpack_message(content)


@pytest.mark.parametrize("key", ["letter", "facts"])
def test_a_message_without_one_of_its_records_is_refused_by_name(key):
    broken = pack_message("keys", b"data")
    del broken[key]
    with pytest.raises(ReplyError, match=key):
        unpack_message(broken)
