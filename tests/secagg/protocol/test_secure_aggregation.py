import pytest

from fedbb.secagg.protocol.secure_aggregation import (
    ClientFailure,
    RecordingTransport,
    StageExchange,
    TooFewError,
    TranscriptEntry,
)


class Echo:
    def exchange(self, stage, messages):
        for client, message in messages.items():
            if client != 1:
                yield client, message.upper()


def test_every_message_is_recorded_and_none_is_changed():
    seen = []
    answers = dict(
        RecordingTransport(Echo(), seen.append).exchange("keys", {0: b"a", 1: b"b", 2: b"c"})
    )
    assert answers == {0: b"A", 2: b"C"}
    assert seen == [
        TranscriptEntry("to", 0, "keys", b"a"),
        TranscriptEntry("to", 1, "keys", b"b"),
        TranscriptEntry("to", 2, "keys", b"c"),
        TranscriptEntry("from", 0, "keys", b"A"),
        TranscriptEntry("from", 2, "keys", b"C"),
    ]


@pytest.mark.parametrize(
    ("failures", "told"),
    [
        ([], "and 3 are needed; nothing was revealed"),
        ([ClientFailure(1, "is late")], "are needed (client 1 is late); nothing was revealed"),
    ],
)
def test_too_few_clients_are_told_with_their_reasons(failures, told):
    exchange = StageExchange(None, None, "attempt", Echo(), failures)
    with pytest.raises(TooFewError) as caught:
        exchange.require("keys", (), 3)
    assert str(caught.value).endswith(told)
