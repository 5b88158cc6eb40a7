"""What a client refuses, whatever the server asks: it trusts its roster and its journal."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedbb.errors import PrivacyError, RefusedError, TooFewError
from fedbb.recipes.privacy import least_cohort
from fedbb.recipes.reader import make_recipe
from fedbb.secagg.masked.client import MaskedSumClient
from fedbb.secagg.primitives.keys import Identity, public_key
from fedbb.secagg.protocol.messages import AttemptId, SignedMessage, sign_message, verify_message
from fedbb.secagg.protocol.replay_guard import FileJournal
from fedbb.secagg.protocol.roster import AGGREGATOR, Roster
from fedbb.secagg.protocol.secure_aggregation import StageExchange
from helpers.secagg_clients import (
    SERVER,
    LocalTransport,
    MemoryJournal,
    counted,
    identity_of,
    make_roster,
    masked_client,
    masked_sum,
    open_transport,
    request,
)

FIVE = make_roster(5)
TARGET = 2

Alter = Callable[[SignedMessage], SignedMessage]


def message_of(
    signed: SignedMessage, facts: dict[str, Any] | None = None, parts: Sequence[bytes] | None = None
) -> SignedMessage:
    """Return a message of the server with other facts or parts."""
    return SignedMessage(
        signed.attempt_id,
        signed.stage,
        AGGREGATOR,
        dict(signed.facts) | (facts or {}),
        signed.parts if parts is None else parts,
    )


def tell(stage: str, alter: Alter, roster: Roster = FIVE) -> Callable[[str, int, bytes], bytes]:
    """Have the server change what it tells the target in one stage."""

    def change(now: str, client: int, message: bytes) -> bytes:
        if (now, client) != (stage, TARGET):
            return message
        return sign_message(alter(verify_message(message, FIVE, stage, AGGREGATOR)), roster, SERVER)

    return change


def refusal(transport: LocalTransport, clients: Sequence[int] = range(5)) -> str:
    """Run a sum and return why the target refused; nobody else does."""
    with suppress(TooFewError):
        masked_sum(FIVE)(request(), clients, transport)
    (told,) = transport.refusals
    assert told[1] == TARGET
    return told[2]


def told(stage: str, alter: Alter) -> str:
    """Return why the target rejects a message of a stage."""
    transport = open_transport()
    transport.change = tell(stage, alter)
    return refusal(transport)


def parts_with(signed: SignedMessage, place: int, part: bytes) -> list[bytes]:
    parts = [bytes(each) for each in signed.parts]
    parts[place] = part
    return parts


# Survivors.


def test_a_client_listed_both_alive_and_dead_is_refused() -> None:
    assert "both as alive and as dead" in told(
        "unmask", lambda signed: message_of(signed, {"dead": [1]})
    )


def test_survivors_other_than_those_agreed_to_are_refused() -> None:
    assert "not those that this client has agreed to" in told(
        "unmask", lambda signed: message_of(signed, {"alive": [0, 2, 3, 4], "dead": [1]})
    )


def test_a_cohort_that_is_neither_alive_nor_dead_is_refused() -> None:
    transport = open_transport()
    transport.silent = {("masked", 1)}
    transport.change = tell("unmask", lambda signed: message_of(signed, {"dead": []}))
    assert "not those that this client has agreed to" in refusal(transport)


def test_too_few_survivors_are_refused() -> None:
    assert "3 clients are too few for a sum; 4 are needed" in told(
        "agree", lambda signed: message_of(signed, {"survivors": [0, 2, 3]})
    )


def test_survivors_without_the_client_itself_are_refused() -> None:
    assert "a sum that it is not part of" in told(
        "agree", lambda signed: message_of(signed, {"survivors": [0, 1, 3, 4]})
    )


def test_survivors_from_outside_the_cohort_are_refused() -> None:
    transport = open_transport(6)
    six = make_roster(6)
    transport.change = lambda stage, client, message: (
        sign_message(
            message_of(
                verify_message(message, six, stage, AGGREGATOR), {"survivors": [0, 1, 2, 3, 5]}
            ),
            six,
            SERVER,
        )
        if (stage, client) == ("agree", TARGET)
        else message
    )
    masked_sum(six)(request(), range(5), transport)
    assert transport.refusals == [("agree", 2, "client 5 is not among the clients of this sum")]


@pytest.mark.parametrize("value", [[2, 1], [1, 1, 2], "all", [0.5], [True, 2], None, [-1, 2]])
def test_a_list_of_survivors_that_is_none_is_refused(value: object) -> None:
    told("agree", lambda signed: message_of(signed, {"survivors": value}))


def test_two_lists_of_survivors_are_not_both_agreed_to() -> None:
    """Not by asking twice, and not by asking a own that was put back to an earlier state."""
    transport = open_transport()
    own = transport.clients[TARGET]
    before: list[bytes] = []

    def ask_twice(stage: str, client: int, message: bytes) -> bytes:
        if (stage, client) == ("agree", TARGET):
            before.append(own.save())
            signed = message_of(
                verify_message(message, FIVE, stage, AGGREGATOR), {"survivors": [0, 1, 2, 3]}
            )
            own.answer(stage, sign_message(signed, FIVE, SERVER), lambda: transport.vectors[client])
            with pytest.raises(RefusedError, match="does not expect stage agree now"):
                own.answer(stage, message, lambda: transport.vectors[client])
            own.restore(before[0])
        return message

    transport.change = ask_twice
    assert "has agreed to another list of survivors" in refusal(transport)


def test_an_agreement_to_another_list_is_refused() -> None:
    """The server had client 0 agree to one list and the target to another."""

    def differ(signed: SignedMessage) -> SignedMessage:
        facts = {"survivors": [0, 1, 2, 3], "same": True}
        other = sign_message(
            SignedMessage(signed.attempt_id, "agree", 0, facts), FIVE, identity_of(0)
        )
        return message_of(signed, parts=parts_with(signed, 0, other))

    assert "client 0 has agreed to another list of survivors" in told("unmask", differ)


def test_an_agreement_of_somebody_who_is_no_survivor_is_refused() -> None:
    transport = open_transport()
    transport.silent = {("masked", 4)}

    def pretend(signed: SignedMessage) -> SignedMessage:
        facts = {"survivors": [0, 1, 2, 3], "same": True}
        dead = sign_message(
            SignedMessage(signed.attempt_id, "agree", 4, facts), FIVE, identity_of(4)
        )
        return message_of(signed, parts=parts_with(signed, 0, dead))

    transport.change = tell("unmask", pretend)
    assert "client 4 signed and is not among the survivors" in refusal(transport)


def test_too_few_agreements_are_refused_and_one_counts_once() -> None:
    def three(signed: SignedMessage) -> SignedMessage:
        return message_of(signed, parts=[*signed.parts[:3], signed.parts[0], signed.parts[0]])

    assert "3 survivors agree to their list; 4 are needed" in told("unmask", three)


def test_an_agreement_the_server_signed_itself_is_refused() -> None:
    def forge(signed: SignedMessage) -> SignedMessage:
        facts = {"survivors": [0, 1, 2, 3, 4], "same": True}
        false = sign_message(SignedMessage(signed.attempt_id, "agree", 0, facts), FIVE, SERVER)
        return message_of(signed, parts=parts_with(signed, 0, false))

    assert "invalid signature" in told("unmask", forge)


# Unmasking once.


def unmasked(journal_of: Callable[[], Any]) -> tuple[LocalTransport, MaskedSumClient, bytes, bytes]:
    """Return a transport after a sum, the target, and its state and message before it unmasked."""
    transport = open_transport()
    own = MaskedSumClient(
        TARGET, identity_of(TARGET), FIVE, journal_of(), entropy=counted("target")
    )
    transport.clients = {**transport.clients, TARGET: own}
    kept: list[bytes] = []

    def keep(stage: str, client: int, message: bytes) -> bytes:
        if (stage, client) == ("unmask", TARGET):
            kept.extend((own.save(), message))
        return message

    transport.change = keep
    masked_sum(FIVE)(request(), range(5), transport)
    return transport, own, kept[0], kept[1]


def test_a_second_unmask_is_refused() -> None:
    transport, own, saved, message = unmasked(MemoryJournal)
    with pytest.raises(RefusedError, match="does not expect stage unmask now"):
        own.answer("unmask", message, lambda: transport.vectors[TARGET])
    own.restore(saved)
    with pytest.raises(RefusedError, match="client 2 has unmasked this before"):
        own.answer("unmask", message, lambda: transport.vectors[TARGET])


def test_a_second_unmask_is_refused_after_a_restart(tmp_path: Path) -> None:
    transport, _, saved, message = unmasked(lambda: FileJournal(tmp_path / "journal"))
    again = MaskedSumClient(TARGET, identity_of(TARGET), FIVE, FileJournal(tmp_path / "journal"))
    again.restore(saved)
    with pytest.raises(RefusedError, match="client 2 has unmasked this before"):
        again.answer("unmask", message, lambda: transport.vectors[TARGET])


def test_the_decision_is_on_disk_before_the_answer(tmp_path: Path) -> None:
    """A journal that cannot be written keeps the own from answering."""

    class Full:
        def decided(self) -> list[str]:
            return []

        def lookup(self, key: str) -> None:
            return None

        def record(self, key: str, decision: str) -> None:
            if key.startswith("revealed"):
                raise PrivacyError("no space left on device")

    transport = open_transport()
    own = MaskedSumClient(TARGET, identity_of(TARGET), FIVE, Full(), entropy=counted("target"))
    transport.clients = {**transport.clients, TARGET: own}
    assert refusal(transport) == "no space left on device"


def test_after_unmasking_nothing_secret_is_left() -> None:
    _, own, _, _ = unmasked(MemoryJournal)
    assert own.attempt is None
    assert own.save() == b""


def test_after_masking_the_client_knows_neither_its_keys_nor_its_seed() -> None:
    _, _, saved, _ = unmasked(MemoryJournal)
    own = masked_client(TARGET, FIVE)
    own.restore(saved)
    assert own.attempt is not None
    assert (own.attempt.secrets.second, own.attempt.seed, own.attempt.peers) == (b"", b"", {})


def test_an_attempt_is_not_begun_twice() -> None:
    transport = open_transport()
    masked_sum(FIVE)(request(), range(5), transport)
    message = next(
        m for stage, client, m, _ in transport.seen if (stage, client) == ("keys", TARGET)
    )
    with pytest.raises(
        RefusedError, match="has begun this attempt before: run, round 1, attempt 1"
    ):
        transport.ask("keys", TARGET, message)


def test_a_replayed_stage_of_an_earlier_round_is_refused() -> None:
    transport = open_transport()
    masked_sum(FIVE)(request(number=1), range(5), transport)
    old = {(stage, client): message for stage, client, message, _ in transport.seen}
    again = LocalTransport(transport.clients, transport.vectors)
    again.change = lambda stage, client, message: (
        old[stage, client] if (stage, client) == ("masked", TARGET) else message
    )
    masked_sum(FIVE, "later")(request(number=2), range(5), again)
    assert again.refusals == [
        ("masked", 2, "a message is from another attempt than run, round 2, attempt 1")
    ]


# Keys and shares.


def test_a_swapped_public_key_is_refused() -> None:
    """The server puts a key of its own in the place of client 0's, whose name it cannot sign."""

    def swap(signed: SignedMessage) -> SignedMessage:
        keys = (public_key(bytes([1] * 32)), public_key(bytes([2] * 32)))
        facts = {"cohort": list(range(5))}
        false = sign_message(SignedMessage(signed.attempt_id, "keys", 0, facts, keys), FIVE, SERVER)
        return message_of(signed, parts=parts_with(signed, 0, false))

    assert "a message of stage keys has an invalid signature" in told("shares", swap)


def test_a_key_put_in_place_of_the_clients_own_is_refused() -> None:
    def swap(signed: SignedMessage) -> SignedMessage:
        keys = (public_key(bytes([1] * 32)), public_key(bytes([2] * 32)))
        facts = {"cohort": list(range(5))}
        other = sign_message(
            SignedMessage(signed.attempt_id, "keys", TARGET, facts, keys), FIVE, identity_of(TARGET)
        )
        return message_of(signed, parts=parts_with(signed, TARGET, other))

    assert "own key was replaced" in told("shares", swap)


def test_a_key_announced_twice_is_refused() -> None:
    def copy(signed: SignedMessage) -> SignedMessage:
        own = verify_message(signed.parts[1], FIVE, "keys", 1)
        facts = {"cohort": list(range(5))}
        copied = SignedMessage(
            signed.attempt_id, "keys", 0, facts, [bytes(part) for part in own.parts]
        )
        return message_of(
            signed, parts=parts_with(signed, 0, sign_message(copied, FIVE, identity_of(0)))
        )

    assert "two public keys of a cohort are the same" in told("shares", copy)


def test_a_key_of_small_order_is_refused() -> None:
    def weaken(signed: SignedMessage) -> SignedMessage:
        keys = (bytes(32), (1).to_bytes(32, "little"))
        facts = {"cohort": list(range(5))}
        weak = sign_message(
            SignedMessage(signed.attempt_id, "keys", 0, facts, keys), FIVE, identity_of(0)
        )
        return message_of(signed, parts=parts_with(signed, 0, weak))

    assert "no secret can be agreed on" in told("shares", weaken)


def test_keys_of_another_attempt_are_refused() -> None:
    def older(signed: SignedMessage) -> SignedMessage:
        attempt_id = AttemptId("run", 1, 1, "00" * 16)
        keys = (public_key(bytes([1] * 32)), public_key(bytes([2] * 32)))
        facts = {"cohort": list(range(5))}
        old = sign_message(SignedMessage(attempt_id, "keys", 0, facts, keys), FIVE, identity_of(0))
        return message_of(signed, parts=parts_with(signed, 0, old))

    assert "from another attempt than" in told("shares", older)


def test_keys_that_are_not_complete_are_refused() -> None:
    def shorten(signed: SignedMessage) -> SignedMessage:
        return message_of(signed, parts=signed.parts[1:])

    assert "not complete" in told("shares", shorten)


def test_clients_that_are_told_of_different_cohorts_find_out() -> None:
    def differ(signed: SignedMessage) -> SignedMessage:
        keys = (public_key(bytes([1] * 32)), public_key(bytes([2] * 32)))
        other = SignedMessage(signed.attempt_id, "keys", 0, {"cohort": [0, 1, 2]}, keys)
        sealed = sign_message(other, FIVE, identity_of(0))
        return message_of(signed, parts=parts_with(signed, 0, sealed))

    assert "client 0 announced its keys for another cohort" in told("shares", differ)


@pytest.mark.parametrize("other", [0, 3])
def test_a_replayed_share_is_refused(other: int) -> None:
    """Of an earlier attempt, and one that was sealed for somebody else."""
    transport = open_transport()
    masked_sum(FIVE)(request(number=1), range(5), transport)
    (old,) = [
        message
        for stage, client, message, _ in transport.seen
        if (stage, client) == ("masked", TARGET if other == 0 else other)
    ]
    share = bytes(verify_message(old, FIVE, "masked", AGGREGATOR).parts[0])
    again = LocalTransport(transport.clients, transport.vectors)
    again.change = tell(
        "masked", lambda signed: message_of(signed, parts=parts_with(signed, 0, share))
    )
    masked_sum(FIVE, "later")(request(number=2), range(5), again)
    assert again.refusals == [
        ("masked", TARGET, "a share was not encrypted by its owner for this attempt")
    ]


def test_shares_given_in_another_order_are_refused() -> None:
    assert "not encrypted by its owner" in told(
        "masked", lambda signed: message_of(signed, parts=list(reversed(signed.parts)))
    )


# Cohorts, rosters, runs.


def test_a_cohort_with_a_stranger_is_refused() -> None:
    assert "client 9 is not among the clients" in told(
        "keys", lambda signed: message_of(signed, {"cohort": [0, 1, 2, 9]})
    )


def test_a_cohort_that_is_too_small_is_refused() -> None:
    assert "2 clients are too few for a sum; 3 are needed" in told(
        "keys", lambda signed: message_of(signed, {"cohort": [1, 2]})
    )


def test_a_message_about_another_roster_is_refused() -> None:
    """A server that adds members of its own makes another roster of it."""
    transport = open_transport()
    transport.change = tell("keys", lambda signed: signed, roster=make_roster(6))
    assert "names another roster" in refusal(transport)


def test_a_message_not_signed_by_the_server_is_refused() -> None:
    transport = open_transport()
    transport.change = lambda stage, client, message: (
        sign_message(verify_message(message, FIVE, stage, AGGREGATOR), FIVE, Identity(bytes(32)))
        if client == TARGET
        else message
    )
    assert "invalid signature" in refusal(transport)


def test_a_message_from_another_client_in_place_of_the_server_is_refused() -> None:
    signed = SignedMessage(AttemptId("run", 1, 1, "00" * 16), "keys", 0, {"cohort": [0, 1, 2]})
    with pytest.raises(RefusedError, match="not from the expected sender"):
        masked_client(TARGET, FIVE).answer("keys", sign_message(signed, FIVE, identity_of(0)), list)


def test_a_client_with_another_key_than_the_rosters_does_not_begin() -> None:
    with pytest.raises(RefusedError, match="has another key for client 2"):
        MaskedSumClient(TARGET, identity_of(1), FIVE, MemoryJournal())
    with pytest.raises(RefusedError, match="client 7 is not in the roster"):
        MaskedSumClient(7, identity_of(7), FIVE, MemoryJournal())


def test_a_client_of_one_run_takes_part_in_no_other() -> None:
    transport = open_transport()
    transport.clients[TARGET].run = "another"  # type: ignore[attr-defined]
    assert "takes part in another, in no other run" in refusal(transport)


@pytest.mark.parametrize("stage", ["shares", "masked", "agree", "unmask"])
def test_a_stage_out_of_turn_is_refused(stage: str) -> None:
    with pytest.raises(RefusedError, match=f"does not expect stage {stage} now"):
        masked_client(TARGET, FIVE).answer(stage, b"", list)


def test_an_unknown_stage_is_refused() -> None:
    with pytest.raises(RefusedError, match="has the stages keys, shares, masked, agree, unmask"):
        masked_client(TARGET, FIVE).answer("decrypt", b"", list)


def test_a_message_of_another_stage_is_refused() -> None:
    signed = SignedMessage(AttemptId("run", 1, 1, "00" * 16), "unmask", AGGREGATOR)
    with pytest.raises(RefusedError, match="a message of stage keys is expected"):
        masked_client(TARGET, FIVE).answer("keys", sign_message(signed, FIVE, SERVER), list)


# Vectors.


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (np.nan, "not finite"),
        (np.inf, "not finite"),
        (-np.inf, "not finite"),
        (2.0**22 / 5 * 1.0001, r"larger than 2^22/5"),
        (-3e38, r"larger than 2^22/5"),
    ],
)
def test_a_number_that_could_spoil_the_sum_is_refused_before_it_is_masked(
    value: float, reason: str
) -> None:
    transport = open_transport()
    transport.vectors[TARGET][7] = value  # type: ignore[index]
    told = refusal(transport)
    assert reason in told
    assert str(value) not in told
    assert not [
        client for stage, client, _, _ in transport.seen if (stage, client) == ("masked", 2)
    ]


@pytest.mark.parametrize(
    ("vector", "reason"),
    [
        (np.zeros(39), "a vector of 40 numbers is requested, not of 39"),
        (np.zeros((40, 1)), "must be flat and of float64"),
        (np.zeros(40, dtype=np.float32), "must be flat and of float64"),
        (np.zeros(40, dtype=np.int64), "must be flat and of float64"),
        (np.zeros(40, dtype=">f8"), "must be flat and of float64"),
        (np.zeros(40, dtype=object), "must be flat and of float64"),
    ],
)
def test_a_vector_of_another_kind_is_refused(vector: np.ndarray, reason: str) -> None:
    transport = open_transport()
    transport.vectors = {**transport.vectors, TARGET: vector}
    assert reason in refusal(transport)


def test_a_client_whose_vector_is_refused_still_awaits_the_stage() -> None:
    """A client that made a mistake may reply again before the deadline."""
    transport = open_transport()
    good = transport.vectors[TARGET]
    transport.vectors = {**transport.vectors, TARGET: good * np.nan}
    refusal(transport)
    attempt = transport.clients[TARGET].attempt  # type: ignore[attr-defined]
    assert attempt.stage == "masked"


def test_nothing_secret_is_printed() -> None:
    own = masked_client(TARGET, FIVE)
    transport = open_transport()
    transport.clients = {**transport.clients, TARGET: own}
    transport.silent = {("masked", TARGET)}
    masked_sum(FIVE)(request(), range(5), transport)
    assert own.attempt is not None
    secret = own.attempt.secrets
    for shown in (own, own.identity, own.attempt, secret):
        text = repr(shown) + str(shown)
        for hidden in (own.identity.secret, secret.first, secret.second, own.attempt.seed):
            assert hidden.hex() not in text
            assert repr(hidden) not in text


# A server with accomplices.


@pytest.mark.parametrize(
    ("clients", "least", "tolerated"), [(3, 3, 1), (5, 4, 2), (10, 7, 3), (50, 34, 17)]
)
def test_the_enrolled_cohort_bounds_how_many_accomplices_a_server_needs(
    clients: int, least: int, tolerated: int
) -> None:
    """The figures of docs/privacy.md, whichever cohort the server picks.

    With t of n, c clients that sign two lists of survivors can have both unmasked if c ≥ 2t − n;
    and c = t − 1 clients know the only other vector in a sum of t.
    """
    recipe = make_recipe({"data": {"name": "digits"}, "method": {"name": "fedbb"}})
    assert least_cohort(recipe, clients) == least
    roster = make_roster(clients, least=least)
    cohorts = {n: roster.needed(n) for n in range(least, clients + 1)}
    assert min(min(2 * t - n, t - 1) for n, t in cohorts.items()) - 1 == tolerated


@pytest.mark.parametrize("least", [3, 4])
def test_a_server_cannot_pick_a_cohort_smaller_than_enrolled(least: int) -> None:
    """Of clients 1, 2 and 3 two accomplices know the third's vector; `least` was 3 for five."""
    transport = open_transport(least=least)
    attempt_id = AttemptId.draw("run", 1, 1, counted("small"))
    # An honest server does not begin such a sum; this one asks for it.
    exchange = StageExchange(make_roster(5, least=least), SERVER, attempt_id, transport)
    facts = {"cohort": [1, 2, 3]}
    joined = exchange.broadcast("keys", [1, 2, 3], lambda message, data: None, facts)
    refusal = "3 clients are too few for a sum; 4 are needed"
    assert joined == ((1, 2, 3) if least == 3 else ())
    refused = [] if least == 3 else [("keys", client, refusal) for client in (1, 2, 3)]
    assert transport.refusals == refused


def test_a_small_cohort_with_two_accomplices_is_one_clients_vector() -> None:
    """P4 under the roster of before, whose least cohort was 3 for any number of clients."""
    transport = open_transport(least=3)
    total = masked_sum(make_roster(5, least=3))(request(), [1, TARGET, 3], transport)
    known = transport.vectors[1] + transport.vectors[3]
    np.testing.assert_allclose(total.values - known, transport.vectors[TARGET], atol=1e-11)
