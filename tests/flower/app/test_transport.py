"""One message to each node; whatever comes back is sorted out, and no one is waited for forever."""

import logging
import time

import httpx
import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.message_pb2 import Metadata, ObjectTree
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse

from fedbb.flower import internals
from fedbb.flower.app.transport import REPLY_BASE, Failure, GridTransport
from helpers.flower_loopback import Loopback, Node, drop, take_identity

EMPTY = RecordDict()


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    take_identity(monkeypatch)


class Echo(Loopback):
    """Nodes that send back which of them they are."""

    def _answer(self, number, node, message):
        content = RecordDict({"facts": MetricRecord({"node": number % 1000})})
        return Message(content, reply_to=message)


def echo(number=3, **options):
    return Echo({1000 + k: Node({"client": k}) for k in range(number)}, {}, **options)


def exchange(grid, seconds=5.0, nodes=None, **options):
    transport = GridTransport(grid, poll=0.01, **options)
    contents = dict.fromkeys(nodes or grid.nodes, EMPTY)
    return list(transport.send_and_receive("query.info", contents, seconds, "a test"))


def test_every_node_is_asked_once_and_answers():
    answers = exchange(echo())
    assert {node: content["facts"]["node"] for node, content in answers} == {
        1000: 0,
        1001: 1,
        1002: 2,
    }


def test_a_message_that_is_refused_fails_its_node_alone():
    grid = echo()
    push = grid.push_messages

    def refuse(messages):
        (message,) = messages
        return [None] if message.metadata.dst_node_id == 1001 else push([message])

    grid.push_messages = refuse
    answers = dict(exchange(grid))
    assert answers[1001] == Failure("the SuperLink rejected the message to it")
    assert isinstance(answers[1000], RecordDict)


def test_who_does_not_answer_is_given_up_after_the_time_and_not_before():
    grid = echo(faults={(1, 0): drop})
    began = time.monotonic()
    answers = dict(exchange(grid, seconds=0.4))
    assert 0.4 <= time.monotonic() - began < 5
    assert answers[1001] == Failure("no reply within 0.4 s")


def test_a_clock_that_jumps_changes_no_deadline(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: -1e9)
    grid = echo(faults={(1, 0): drop})
    assert len(exchange(grid, seconds=0.2)) == 3


def test_errors_of_a_node_come_as_one_short_line():
    def fail(message):
        request = grid._sent_last
        return [Message(Error(99, "bad\x1b[31m\nthings " * 100), reply_to=request)]

    grid = echo(faults={(2, 0): fail})
    work = grid._work

    def keep_request(number, parcel):
        grid._sent_last = parcel.unpack()
        return work(number, parcel)

    grid._work = keep_request
    reason = dict(exchange(grid))[1002].reason
    assert reason.startswith("bad?[31m things bad")
    assert len(reason) <= 300


def test_an_answer_to_something_else_is_dropped(caplog):
    grid = echo(1)
    pull = grid.pull_messages

    def mix_up(numbers):
        for message in pull(numbers):
            message.metadata.__dict__["_reply_to_message_id"] = "another"
            yield message

    grid.pull_messages = mix_up
    with caplog.at_level(logging.WARNING, "fedbb"):
        ((_, outcome),) = exchange(grid, seconds=0.1)
    assert outcome == Failure("no reply within 0.1 s")
    assert "dropped a reply to another message" in caplog.text


def test_a_line_to_the_server_that_breaks_is_not_blamed_on_a_site():
    grid = echo()

    def break_down(numbers):
        raise httpx.ConnectError("gone")

    grid.pull_messages = break_down
    with pytest.raises(httpx.ConnectError):
        exchange(grid)


def test_a_superlink_in_trouble_is_asked_again(caplog):
    grid = echo()
    pull, troubles = grid.pull_messages, [500, 503]

    def fail_at_first(numbers):
        if troubles:
            request = httpx.Request("POST", "https://server/pull-messages")
            response = httpx.Response(troubles.pop(), request=request)
            response.raise_for_status()
        return pull(numbers)

    grid.pull_messages = fail_at_first
    with caplog.at_level(logging.WARNING, "fedbb"):
        found = dict(exchange(grid))
    assert not any(isinstance(outcome, Failure) for outcome in found.values())
    assert len(found) == 3
    assert caplog.text.count("is asked again") == 2


def test_a_superlink_that_refuses_ends_the_exchange():
    grid = echo()

    def refuse(numbers):
        httpx.Response(403, request=httpx.Request("POST", "https://server")).raise_for_status()

    grid.pull_messages = refuse
    with pytest.raises(httpx.HTTPStatusError):
        exchange(grid)


def test_rests_grow_with_the_wait_but_not_beyond_what_is_left():
    transport = GridTransport(echo(), poll=0.2)
    assert transport._pause(0.0, 0.0, 100.0) == 0.2
    assert transport._pause(30.0, 0.0, 100.0) == 1.0
    assert transport._pause(6000.0, 0.0, 100.0) == 2.0
    assert transport._pause(30.0, 0.0, 0.1) == 0.1
    assert transport._pause(30.0, 0.0, -1.0) == 0.0


def test_a_slow_superlink_is_asked_more_rarely():
    transport = GridTransport(echo(), poll=0.2)
    assert transport._pause(0.0, 0.3, 100.0) == 0.6
    assert transport._pause(0.0, 5.0, 100.0) == 2.0


def test_the_longest_reply_grows_with_the_messages_and_the_statistics():
    transport = GridTransport(echo(), poll=0.01)
    assert transport.longest_reply() == REPLY_BASE
    for numbers in (1000, 3000, 2000):
        content = RecordDict({"model": ArrayRecord([np.zeros(numbers)])})
        list(transport.send_and_receive("query.info", {1000: content}, 5.0, "a test"))
    model = transport.longest_reply() - REPLY_BASE
    assert 8 * 3000 * 8 <= model < 8 * 3100 * 8
    transport.statistics_numbers = 100
    assert transport.longest_reply() == REPLY_BASE + model + 1600


def test_bytes_beside_arrays_count_and_empty_values_do_no_harm():
    transport = GridTransport(echo(), poll=0.01)
    empty = ConfigRecord({"list": [], "text": "", "bytes": b""})
    for content in (RecordDict({"a": empty}), RecordDict({"a": ConfigRecord({"b": bytes(1000)})})):
        ((node, outcome),) = transport.send_and_receive("query.info", {1000: content}, 5.0, "test")
        assert node == 1000
        assert isinstance(outcome, RecordDict)
    assert transport.longest_reply() == REPLY_BASE + 8000


class Line:
    """A connection to a SuperLink, which says of each reply once that it has arrived."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.requests = []

    def PullMessages(self, request):  # noqa: N802
        self.requests.append(list(request.message_ids))
        found = [r for r in self.replies if r.metadata.reply_to_message_id in request.message_ids]
        self.replies = [reply for reply in self.replies if reply not in found]
        return PullAppMessagesResponse(
            messages_list=found, message_object_trees=[ObjectTree() for _ in found]
        )


def reply_to(number):
    return ProtoMessage(
        metadata=Metadata(message_id=f"reply to {number}", reply_to_message_id=number)
    )


def pull(line, number):
    """Return the ids of the replies that a grid gets."""
    response = line.PullMessages(PullAppMessagesRequest(message_ids=[number]))
    assert len(response.messages_list) == len(response.message_object_trees)
    return [message.metadata.message_id for message in response.messages_list]


def test_all_replies_are_asked_for_at_once_and_taken_one_by_one():
    line = Line(reply_to("a"), reply_to("c"), reply_to("c"))
    arrivals = internals.Arrivals(line)
    assert arrivals(["a", "b", "c"]) == ["a", "c"]
    assert pull(line, "a") == ["reply to a"]
    assert pull(line, "c") == ["reply to c"] * 2
    assert line.requests == [["a", "b", "c"]]
    assert pull(line, "b") == []
    assert line.requests[1:] == [["b"]]


def test_a_reply_that_was_announced_is_kept_until_it_is_asked_for_no_more():
    line = Line(reply_to("a"))
    arrivals = internals.Arrivals(line)
    assert [arrivals(["a", "b"]) for _ in range(2)] == [["a"], ["a"]]
    assert pull(line, "a") == ["reply to a"]
    assert arrivals(["b"]) == arrivals(["a", "b"]) == []


def announcing(*troubles):
    """Return the arrivals of nodes that answer at once, and how many were asked for each time."""
    asked, left = [], list(troubles)

    def arrivals(numbers):
        asked.append(len(numbers))
        if left:
            request = httpx.Request("POST", "https://server/pull-messages")
            httpx.Response(left.pop(), request=request).raise_for_status()
        return numbers

    return arrivals, asked


def test_one_request_finds_the_replies_of_all_nodes():
    arrivals, asked = announcing()
    assert len(exchange(echo(), arrivals=arrivals)) == 3
    assert asked == [3]


def test_only_what_has_arrived_is_pulled():
    grid = echo()
    pulled, pull_all = [], grid.pull_messages

    def note(numbers):
        pulled.extend(numbers)
        return pull_all(numbers)

    grid.pull_messages = note
    answers = dict(exchange(grid, seconds=0.2, arrivals=lambda numbers: numbers[:1]))
    assert len(set(pulled)) == len(pulled) == 3
    assert not any(isinstance(answer, Failure) for answer in answers.values())
    answers = dict(exchange(echo(), seconds=0.1, arrivals=lambda numbers: []))
    assert set(answers.values()) == {Failure("no reply within 0.1 s")}


def test_a_superlink_in_trouble_is_asked_again_for_all_replies(caplog):
    arrivals, asked = announcing(503)
    with caplog.at_level(logging.WARNING, "fedbb"):
        assert len(exchange(echo(), arrivals=arrivals)) == 3
    assert asked == [3, 3]
    assert "is asked again" in caplog.text
    with pytest.raises(httpx.HTTPStatusError):
        exchange(echo(), arrivals=announcing(403)[0])
