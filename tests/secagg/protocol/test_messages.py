"""Signed messages, and every parser of untrusted bytes: invalid ones raise one kind of error."""

import ast
import json
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedbb.errors import PrivacyError, RefusedError
from fedbb.secagg.masked.client import STAGES, load_attempt
from fedbb.secagg.primitives.shamir import combine
from fedbb.secagg.protocol.canonical import canonical_json, parse_canonical
from fedbb.secagg.protocol.messages import AttemptId, SignedMessage, sign_message, verify_message
from fedbb.secagg.protocol.roster import AGGREGATOR, read_roster
from helpers.secagg_clients import (
    ENROLMENT,
    SERVER,
    LocalTransport,
    identity_of,
    make_roster,
    masked_sum,
    open_transport,
    request,
)

ROSTER = make_roster(3)
ATTEMPT_ID = AttemptId("run", 1, 1, "00" * 16)
MESSAGE = SignedMessage(ATTEMPT_ID, "keys", 1, {"cohort": [0, 1, 2]}, (b"one", b"", b"three"))
SIGNED = sign_message(MESSAGE, ROSTER, identity_of(1))


def test_a_message_comes_back_as_it_was() -> None:
    signed = verify_message(SIGNED, ROSTER, "keys", 1, ATTEMPT_ID)
    assert (signed.attempt_id, signed.stage, signed.sender) == (ATTEMPT_ID, "keys", 1)
    assert signed.facts == {"cohort": [0, 1, 2]}
    assert [bytes(part) for part in signed.parts] == [b"one", b"", b"three"]


def test_the_same_message_is_the_same_bytes() -> None:
    assert sign_message(MESSAGE, ROSTER, identity_of(1)) == SIGNED


def test_every_flipped_bit_is_found() -> None:
    for place in range(len(SIGNED)):
        for bit in range(8):
            spoiled = bytearray(SIGNED)
            spoiled[place] ^= 1 << bit
            with pytest.raises(RefusedError):
                verify_message(bytes(spoiled), ROSTER, "keys", 1, ATTEMPT_ID)


def test_every_cut_and_every_surplus_is_found() -> None:
    for end in range(len(SIGNED)):
        with pytest.raises(RefusedError):
            verify_message(SIGNED[:end], ROSTER, "keys", 1, ATTEMPT_ID)
    with pytest.raises(RefusedError, match="longer or shorter than its parts"):
        verify_message(SIGNED + b"x", ROSTER, "keys", 1, ATTEMPT_ID)


def test_any_member_or_one_but_not_the_server_where_a_member_is_awaited() -> None:
    assert verify_message(SIGNED, ROSTER, "keys", None).sender == 1
    with pytest.raises(RefusedError, match="not from the expected sender"):
        verify_message(SIGNED, ROSTER, "keys", 2)
    servers = sign_message(SignedMessage(ATTEMPT_ID, "keys", AGGREGATOR), ROSTER, SERVER)
    with pytest.raises(RefusedError, match="not from the expected sender"):
        verify_message(servers, ROSTER, "keys", None)


@pytest.mark.parametrize(
    "other",
    [
        AttemptId("another", 1, 1, "00" * 16),
        AttemptId("run", 2, 1, "00" * 16),
        AttemptId("run", 1, 2, "00" * 16),
        AttemptId("run", 1, 1, "01" * 16),
    ],
)
def test_a_message_serves_on_its_occasion_only(other: AttemptId) -> None:
    with pytest.raises(RefusedError, match="another attempt"):
        verify_message(SIGNED, ROSTER, "keys", 1, other)


def with_header(change: Callable[[dict[str, object]], object]) -> bytes:
    """Return a message whose sender signed a header of the wrong kind."""
    (length,) = struct.unpack("<I", SIGNED[4:8])
    record = json.loads(SIGNED[8 : 8 + length])
    changed = change(record)
    header = canonical_json(record if changed is None else changed)
    return b"fbb1" + struct.pack("<I", len(header)) + header + bytes(64) + b"onethree"


@pytest.mark.parametrize(
    "change",
    [
        lambda record: [record],
        lambda record: record.update(surplus=1),
        lambda record: record.pop("token") and None,
        lambda record: record.update(token="short"),
        lambda record: record.update(token="AB" * 16),
        lambda record: record.update(round=-1),
        lambda record: record.update(round=1.0),
        lambda record: record.update(round=True),
        lambda record: record.update(round=10**30),
        lambda record: record.update(attempt=0),
        lambda record: record.update(run=7),
        lambda record: record.update(sender=-2),
        lambda record: record.update(sender="1"),
        lambda record: record.update(sender=9),
        lambda record: record.update(stage=None),
        lambda record: record.update(facts=[]),
        lambda record: record.update(parts=[3, -1, 6]),
        lambda record: record.update(parts=[3, 0, 2**52]),
        lambda record: record.update(parts=3),
        lambda record: record.update(roster=None),
    ],
)
def test_a_header_of_the_wrong_kind_is_refused(
    change: Callable[[dict[str, object]], object],
) -> None:
    with pytest.raises(RefusedError):
        verify_message(with_header(change), ROSTER, "keys", None)


def test_json_has_one_encoding() -> None:
    assert parse_canonical(b'{"a":1,"b":[]}', "it") == {"a": 1, "b": []}
    for other in (b'{"b":[],"a":1}', b'{"a": 1}', b'{"a":1,"a":1}', b"1.0e0", b'"\\u0061"', b"NaN"):
        with pytest.raises(RefusedError):
            parse_canonical(other, "it")


NESTED = b"[" * 100_000 + b"]" * 100_000
LONG = b"9" * 10_000


def refused_or_read(parser: Callable[[bytes], object], content: bytes) -> None:
    """Whatever the bytes: an answer, or an error that is meant for them."""
    with suppress(PrivacyError):
        parser(content)


def framed(header: bytes) -> bytes:
    return b"fbb1" + struct.pack("<I", len(header)) + header + bytes(64)


@settings(deadline=None)
@given(st.binary(max_size=300))
@example(NESTED)
@example(LONG)
@example(b"null")
@example(b"\xff\xfe")
def test_no_bytes_make_a_parser_fail_in_another_way(content: bytes) -> None:
    for read in (
        lambda data: verify_message(data, ROSTER, "keys", None),
        lambda data: verify_message(framed(data), ROSTER, "keys", None),
        lambda data: read_roster(data, ENROLMENT.public),
        lambda data: parse_canonical(data, "it"),
        lambda data: combine({0: data, 1: data}),
        load_attempt,
    ):
        refused_or_read(read, content)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_no_json_makes_a_parser_fail_in_another_way(value: object) -> None:
    try:
        content = canonical_json(value)
    except ValueError:  # infinity
        return
    refused_or_read(lambda data: verify_message(framed(data), ROSTER, "keys", None), content)
    refused_or_read(load_attempt, content)
    refused_or_read(lambda data: read_roster(data, ENROLMENT.public), content)


ATTEMPTS: list[bytes] = []


def _watch(transport: LocalTransport) -> LocalTransport:
    def keep(stage: str, client: int, message: bytes) -> bytes:
        ATTEMPTS.append(transport.clients[client].save())
        return message

    transport.change = keep
    return transport


masked_sum(ROSTER)(request(4), range(3), _watch(open_transport(3, 4)))


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_saved_attempt_with_other_values_is_refused_or_another_attempt(
    data: st.DataObject,
) -> None:
    saved = data.draw(st.sampled_from([each for each in ATTEMPTS if each]))
    record = json.loads(saved)
    field = data.draw(st.sampled_from(sorted(record)))
    record[field] = data.draw(
        st.none() | st.integers() | st.text() | st.lists(st.integers() | st.lists(st.text()))
    )
    refused_or_read(load_attempt, canonical_json(record))


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(STAGES), st.data())
def test_no_message_that_a_server_can_sign_makes_a_client_fail_in_another_way(
    stage: str, data: st.DataObject
) -> None:
    """Facts and parts at random, in the stage that the party is ready for."""
    transport = open_transport(3, 4)
    facts = data.draw(
        st.dictionaries(
            st.sampled_from(["cohort", "length", "whole", "survivors", "alive", "dead"]),
            st.none() | st.booleans() | st.integers() | st.lists(st.integers(-1, 4)),
        )
    )
    parts = data.draw(st.lists(st.binary(max_size=120), max_size=4))
    before = data.draw(st.booleans())

    def spoil(now: str, client: int, message: bytes) -> bytes:
        if (now, client) != (stage, 1):
            return message
        signed = verify_message(message, ROSTER, stage, AGGREGATOR)
        kept = dict(signed.facts) if before else {}
        return sign_message(
            SignedMessage(signed.attempt_id, stage, AGGREGATOR, kept | facts, parts), ROSTER, SERVER
        )

    transport.change = spoil
    refused_or_read(lambda _: masked_sum(ROSTER)(request(4), range(3), transport), b"")


def test_a_server_that_gets_any_bytes_takes_them_for_none() -> None:
    class Garbage:
        def exchange(self, stage, messages):  # type: ignore[no-untyped-def]
            for client in messages:
                yield client, bytes(client)

    with pytest.raises(PrivacyError, match="0 clients are left"):
        masked_sum(ROSTER)(request(4), range(3), Garbage())


def test_no_part_of_the_package_unpickles() -> None:
    folder = Path(__file__).parents[3] / "src" / "fedbb" / "secagg"
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            roots = {name.split(".")[0] for name in names}
            assert not roots & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}, (
                file
            )


def test_nothing_a_client_sends_holds_its_numbers() -> None:
    """Rare numbers, looked for as whole numbers, as floats of both sizes, and as text."""
    transport = open_transport(3, 4)
    rare = np.array([1234567.891011, -7654321.0, 0.123456789, 98765.4321]) / 8
    transport.vectors = {**transport.vectors, 1: rare}
    masked_sum(ROSTER)(request(4), range(3), transport)
    sent = b"".join(answer for _, client, _, answer in transport.seen if client == 1)
    ring = np.rint(rare * 2.0**40).astype(np.int64)
    for number, fixed in zip(rare, ring, strict=True):
        for needle in (
            np.float64(number).tobytes(),
            np.float32(number).tobytes(),
            fixed.tobytes(),
            fixed.astype(">i8").tobytes(),
            str(float(number)).encode(),
        ):
            assert needle not in sent


def test_a_client_signs_each_of_its_messages() -> None:
    transport = open_transport(3, 4)
    masked_sum(ROSTER)(request(4), range(3), transport)
    for stage, client, _, answer in transport.seen:
        assert verify_message(answer, ROSTER, stage, client).sender == client
        other = make_roster(3, least_dispersion=0.5)
        with pytest.raises(RefusedError, match="another roster"):
            verify_message(answer, other, stage, client)
