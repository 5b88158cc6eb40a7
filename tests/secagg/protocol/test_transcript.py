from fedbb.secagg.protocol.transcript import Passing, Watched


class Echo:
    def exchange(self, stage, messages):
        for client, message in messages.items():
            if client != 1:
                yield client, message.upper()


def test_all_that_passes_is_shown_and_nothing_is_changed():
    seen = []
    answers = dict(Watched(Echo(), seen.append).exchange("keys", {0: b"a", 1: b"b", 2: b"c"}))
    assert answers == {0: b"A", 2: b"C"}
    assert seen == [
        Passing("to", 0, "keys", b"a"),
        Passing("to", 1, "keys", b"b"),
        Passing("to", 2, "keys", b"c"),
        Passing("from", 0, "keys", b"A"),
        Passing("from", 2, "keys", b"C"),
    ]
