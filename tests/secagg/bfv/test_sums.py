import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbb.errors import PrivacyError, RefusedError, TooFewError
from fedbb.secagg.primitives.fixed_point import as_bytes
from fedbb.secagg.protocol.canonical import canonical_json
from fedbb.secagg.protocol.messages import (
    AttemptId,
    SignedMessage,
    check_group,
    sign_message,
    verify_message,
)
from fedbb.secagg.protocol.replay_guard import RunLimit
from fedbb.secagg.protocol.roster import AGGREGATOR
from fedbb.secagg.protocol.secure_aggregation import SumResult
from helpers.secagg_clients import (
    SERVER,
    Change,
    LocalTransport,
    MemoryJournal,
    identity_of,
    make_roster,
    masked_client,
    masked_sum,
    request,
)

pytest.importorskip("tenseal", reason="BFV needs fedbb[he]")

from fedbb.secagg.bfv import sums as bfv
from fedbb.secagg.bfv.sums import BfvSumClient, BfvSumServer, verify_receipt

FIVE = make_roster(5)


def open_transport(vectors: dict[int, np.ndarray] | None = None) -> LocalTransport:
    rng = np.random.default_rng(0)
    rows = vectors or {client: rng.integers(-(2**58), 2**58, 3) for client in range(5)}
    parties = {
        client: BfvSumClient(client, identity_of(client), FIVE, MemoryJournal())
        for client in range(5)
    }
    return LocalTransport(parties, rows)


def total_of(transport: LocalTransport, clients: range = range(5), number: int = 0) -> SumResult:
    length = len(next(iter(transport.vectors.values())))
    return BfvSumServer(FIVE, SERVER)(request(length, number, whole=True), clients, transport)


def plain_sum(transport: LocalTransport, clients: tuple[int, ...]) -> list[int]:
    return [
        sum(column)
        for column in zip(*(transport.vectors[c].tolist() for c in clients), strict=True)
    ]


def masked_transport(vectors: dict[int, np.ndarray]) -> LocalTransport:
    return LocalTransport({client: masked_client(client, FIVE) for client in range(5)}, vectors)


def test_encrypted_and_masked_sums_agree_to_the_last_digit() -> None:
    transport = open_transport()
    total = total_of(transport)
    masked = masked_sum(FIVE)(
        request(3, whole=True), range(5), masked_transport(dict(transport.vectors))
    )
    assert total.values.dtype == masked.values.dtype == np.int64
    assert total.values.tolist() == masked.values.tolist() == plain_sum(transport, total.clients)
    assert total.clients == masked.clients == (0, 1, 2, 3, 4)


@settings(deadline=None, max_examples=5)
@given(
    st.lists(st.lists(st.integers(-(2**59), 2**59), min_size=2, max_size=2), min_size=5, max_size=5)
)
def test_they_agree_on_any_whole_numbers(rows: list[list[int]]) -> None:
    vectors = {client: np.array(row) for client, row in enumerate(rows)}
    total = total_of(open_transport(vectors))
    masked = masked_sum(FIVE)(request(2, whole=True), range(5), masked_transport(vectors))
    assert total.values.tolist() == masked.values.tolist()


def test_a_vector_longer_than_a_ciphertext_is_cut_into_several() -> None:
    length = 2 * bfv.NUMBERS + 7
    transport = open_transport({client: np.arange(length) * (client - 2) for client in range(5)})
    assert total_of(transport).values.tolist() == plain_sum(transport, tuple(range(5)))
    answer = next(a for stage, _, _, a in transport.seen if stage == "open")
    assert len(verify_message(answer, FIVE, "open", None).parts) == 3


def test_the_largest_pieces_of_the_most_clients_fit_the_plaintext() -> None:
    assert bfv.MOST_CLIENTS * (2**16 - 1) <= (bfv.MODULUS - 1) // 2
    assert bfv.MOST_CLIENTS > 8000
    assert bfv.MODULUS % (2 * bfv.DEGREE) == 1


@pytest.mark.parametrize(
    ("stage", "client"),
    [("context", 0), ("context", 3), ("encrypt", 1), ("encrypt", 4), ("open", 1), ("open", 4)],
)
def test_one_of_five_may_fall_silent_before_the_sum_is_decrypted(stage: str, client: int) -> None:
    """The first holds the keys; if it goes before anybody encrypted, the next one does."""
    transport = open_transport()
    transport.silent = {(stage, client)}
    transport.restart = True
    total = total_of(transport)
    gone = stage != "context" or client == 0
    assert total.clients == tuple(other for other in range(5) if not (gone and other == client))
    assert total.attempts == (2 if client == 0 else 1)
    assert total.values.tolist() == plain_sum(transport, total.clients)
    assert [absence.client for absence in total.failures] == ([client] if gone else [])


@pytest.mark.parametrize("stage", ["encrypt", "open"])
def test_once_clients_encrypted_for_a_key_holder_they_wait_for_it(stage: str) -> None:
    """A second key-holder could decrypt a sum over other clients, and the difference is one."""
    transport = open_transport()
    transport.silent = {(stage, 0)}
    with pytest.raises(TooFewError, match="client 0, which holds the keys, dropped out"):
        total_of(transport)
    again = LocalTransport(transport.clients, transport.vectors)
    with pytest.raises(TooFewError):
        total_of(again, range(1, 5))
    reasons = {reason for _, _, reason in again.refusals}
    assert len(again.refusals) == len(reasons) == 4
    assert all("has encrypted for client 0 in round 0 of run" in reason for reason in reasons)
    back = LocalTransport(transport.clients, transport.vectors)
    assert total_of(back).values.tolist() == plain_sum(transport, tuple(range(5)))


def test_without_the_key_holder_there_is_no_sum() -> None:
    transport = open_transport()
    transport.silent = {("decrypt", 0)}
    with pytest.raises(TooFewError, match="client 0 gave no answer in stage decrypt"):
        total_of(transport)


@pytest.mark.parametrize(("stage", "after"), [("encrypt", "open"), ("open", "decrypt")])
def test_too_few_clients_are_not_decrypted(stage: str, after: str) -> None:
    transport = open_transport()
    transport.silent = {(stage, 1), (stage, 2)}
    with pytest.raises(TooFewError, match=f"3 clients are left after stage {stage}"):
        total_of(transport)
    assert after not in {stage for stage, _, _, _ in transport.seen}


def test_numbers_that_are_not_whole_are_refused() -> None:
    with pytest.raises(PrivacyError, match="BFV sums integers"):
        BfvSumServer(FIVE, SERVER)(request(3), range(5), open_transport())
    transport = open_transport({client: np.zeros(3) for client in range(5)})
    with pytest.raises(TooFewError):
        total_of(transport)
    assert "flat and of int64" in transport.refusals[0][2]


def test_no_message_to_or_from_the_server_holds_the_secret_key() -> None:
    transport = open_transport()
    contexts: list[bytes] = []

    def watch(stage: str, client: int, message: bytes) -> bytes:
        if (stage, client) == ("encrypt", 0):
            saved = json.loads(transport.clients[0].save())
            contexts.append(bytes.fromhex(saved["context"]))
        return message

    transport.change = watch
    total_of(transport)
    (secret,) = contexts
    context = next(a for stage, _, _, a in transport.seen if stage == "context")
    public = bytes(verify_message(context, FIVE, "context", 0).parts[0])
    with pytest.raises(PrivacyError, match="the secret key, which is not here"):
        bfv.decrypt(public, [])
    with pytest.raises(RefusedError, match="contains its secret key"):
        bfv.encrypt(secret, np.zeros(1, np.uint64))
    # A run of bytes that is in the whole context and not in its public part is of the secret key.
    runs = (secret[at : at + 64] for at in range(0, len(secret) - 64, 64))
    hidden = [run for run in runs if run not in public]
    assert len(hidden) > 100
    carried = b"".join(m + a for _, _, m, a in transport.seen)
    assert not any(run in carried for run in hidden[:: len(hidden) // 50])


def test_after_decrypting_the_key_is_forgotten() -> None:
    transport = open_transport()
    total_of(transport)
    assert transport.clients[0].save() == b""


Forge = Callable[[Sequence[bytes]], Sequence[bytes]]


def changed_decryption(facts: dict[str, object], forge: Forge) -> Change:
    """Return the lie of a server that changes what it asks the key-holder to decrypt."""

    def change(stage: str, client: int, message: bytes) -> bytes:
        if stage != "decrypt":
            return message
        signed = verify_message(message, FIVE, stage, AGGREGATOR)
        changed = SignedMessage(
            signed.attempt_id,
            stage,
            AGGREGATOR,
            dict(signed.facts) | facts,
            forge([bytes(part) for part in signed.parts]),
        )
        return sign_message(changed, FIVE, SERVER)

    return change


def asked_to_decrypt(
    transport: LocalTransport, facts: dict[str, object], forge: Forge = lambda parts: parts
) -> str:
    """Return why the key-holder refuses a sum that the server has changed."""
    transport.change = changed_decryption(facts, forge)
    with pytest.raises(TooFewError):
        total_of(transport)
    ((stage, client, reason),) = transport.refusals
    assert (stage, client) == ("decrypt", 0)
    return reason


def test_a_key_holder_decrypts_no_sum_over_too_few() -> None:
    reason = asked_to_decrypt(open_transport(), {"survivors": [0, 1, 2]}, lambda parts: parts[:3])
    assert reason == "3 clients are too few for a sum; 4 are needed"


VICTIM = 2
ATTACKS: dict[str, tuple[Forge, str]] = {
    "the victim's ciphertext as the sum": (lambda parts: [parts[VICTIM]], "one signed ciphertext"),
    "the victim's ciphertext for everybody": (
        lambda parts: [parts[VICTIM]] * 5,
        "not from the expected sender",
    ),
    "the others left out": (lambda parts: [parts[0], parts[VICTIM]], "one signed ciphertext"),
    "ciphertexts that nobody signed": (
        lambda parts: [parts[0], *(_unsigned(part) for part in parts[1:])],
        "invalid signature",
    ),
}


def _unsigned(part: bytes) -> bytes:
    return part[:-1] + bytes([part[-1] ^ 1])


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_server_that_hands_the_key_holder_something_else_than_the_sum_is_refused(
    attack: str,
) -> None:
    """P3: the key-holder of before decrypted whatever ciphertext came with enough receipts."""
    forge, reason = ATTACKS[attack]
    assert reason in asked_to_decrypt(open_transport(), {}, forge)


class TrustingKeyHolder(BfvSumClient):
    """The key-holder of before: enough signatures, and then whatever the server calls the sum."""

    def _decrypt(self, message: SignedMessage) -> SignedMessage:
        state = self.state
        assert state is not None
        survivors = message.clients("survivors")
        check_group(self.client, survivors, state.cohort, self.roster.needed(len(state.cohort)))
        signed, total = message.parts[: len(survivors)], message.parts[len(survivors) :]
        for client, part in zip(survivors, signed, strict=True):
            verify_message(part, self.roster, "open", client, state.attempt_id)
        self._guard.reveal(state.attempt_id, survivors, same=True)
        return self._reply(
            message, {}, as_bytes(bfv.decrypt(state.context, [bytes(part) for part in total]))
        )


def append_the_victims_ciphertext(parts: Sequence[bytes]) -> Sequence[bytes]:
    victim = verify_message(parts[VICTIM], FIVE, "open", VICTIM)
    return [*parts, *(bytes(part) for part in victim.parts)]


@pytest.mark.parametrize("trusting", [True, False])
def test_one_ciphertext_in_place_of_the_sum_does_not_isolate_a_client(trusting: bool) -> None:
    """P3: the key-holder of before gives the victim's exact numbers, the one of today none."""
    transport = open_transport()
    if not trusting:
        reason = asked_to_decrypt(transport, {}, append_the_victims_ciphertext)
        assert reason == "a sum needs one signed ciphertext from each of its clients"
        return
    holder = TrustingKeyHolder(0, identity_of(0), FIVE, MemoryJournal())
    transport.clients = {**transport.clients, 0: holder}
    transport.change = changed_decryption({}, append_the_victims_ciphertext)
    assert total_of(transport).values.tolist() == transport.vectors[VICTIM].tolist()


ACCOMPLICE = 4


class Accomplice(BfvSumClient):
    """A client that takes the others' ciphertexts out of the sum, all but the victim's.

    It adds to the count of clients what they would have, so that the sum looks like one.
    """

    transport: LocalTransport

    def _give(self, message: SignedMessage) -> SignedMessage:
        honest = super()._give(message)
        (context,) = {a for stage, _, _, a in self.transport.seen if stage == "context"}
        public = bytes(verify_message(context, FIVE, "context", 0).parts[0])
        total = bfv.BfvTotal(public, 3)
        for stage, client, _, data in self.transport.seen:
            if stage == "open" and client != VICTIM:
                total.add(list(map(bytes, verify_message(data, FIVE, "open", client).parts)))
        (others,) = total.read(total.parts())
        (count,) = total.read(bfv.encrypt(public, np.array([0, 0, 4], np.uint64)))
        return self._reply(message, honest.facts, bytes((count - others).serialize()))


def accept_anything(attempt: bfv._Attempt, message: SignedMessage, data: bytes) -> None:
    """Keep, at a lying server, whatever a client gives."""
    attempt._given[message.sender] = data


@pytest.mark.parametrize("promising", [False, True])
def test_an_accomplice_does_not_take_all_others_out_of_the_sum(
    promising: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client besides the lying server was enough for the exact numbers of any other."""
    monkeypatch.setattr(bfv._Attempt, "_keep", accept_anything)
    transport = open_transport({k: np.array([100 + k, 2**40 + k, 1]) for k in range(5)})
    accomplice = Accomplice(ACCOMPLICE, identity_of(ACCOMPLICE), FIVE, MemoryJournal())
    accomplice.transport = transport
    transport.clients = {**transport.clients, ACCOMPLICE: accomplice}
    if promising:
        with pytest.raises(TooFewError):
            total_of(transport)
        reason = "client 4 gave other ciphertexts than it promised"
        assert transport.refusals == [("decrypt", 0, reason)]
        return
    monkeypatch.setattr(bfv, "_check_given", lambda *told: None)
    total = total_of(transport)
    assert total.clients == tuple(range(5))
    assert total.values.tolist() == [100 + VICTIM, 2**40 + VICTIM, 5]


def change_promises(message: bytes, forge: Forge, **facts: object) -> bytes:
    """Return the server's question for ciphertexts with other promises."""
    told = verify_message(message, FIVE, "open", AGGREGATOR)
    parts = forge([bytes(part) for part in told.parts])
    changed = SignedMessage(told.attempt_id, "open", AGGREGATOR, {**told.facts, **facts}, parts)
    return sign_message(changed, FIVE, SERVER)


def test_clients_that_were_shown_other_promises_are_not_in_a_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An accomplice may promise twice: once to the client that is to give, once to the holder."""
    monkeypatch.setattr(bfv._Attempt, "_keep", accept_anything)
    transport = open_transport()

    def promise_twice(parts: Sequence[bytes]) -> Sequence[bytes]:
        first = verify_message(parts[ACCOMPLICE], FIVE, "encrypt", ACCOMPLICE)
        facts = {**first.facts, "sha256": "00" * 32}
        second = SignedMessage(first.attempt_id, "encrypt", ACCOMPLICE, facts)
        return [*parts[:ACCOMPLICE], sign_message(second, FIVE, identity_of(ACCOMPLICE))]

    transport.change = lambda stage, client, message: (
        change_promises(message, promise_twice) if (stage, client) == ("open", 1) else message
    )
    with pytest.raises(TooFewError):
        total_of(transport)
    reason = "client 1 was shown other promises than this one"
    assert transport.refusals == [("decrypt", 0, reason)]


@pytest.mark.parametrize(
    ("forge", "facts", "reason"),
    [
        (lambda parts: parts[:3], {"clients": [0, 1, 2]}, "3 clients are too few"),
        (lambda parts: parts[:4], {}, "one signed promise from each client"),
        (lambda parts: [*parts[:4], parts[0]], {}, "not from the expected sender"),
        (lambda parts: [*parts[:4], _unsigned(parts[4])], {}, "invalid signature"),
    ],
)
def test_ciphertexts_are_given_only_after_enough_have_promised(
    forge: Forge, facts: dict[str, object], reason: str
) -> None:
    transport = open_transport()
    transport.change = lambda stage, client, message: (
        change_promises(message, forge, **facts) if stage == "open" else message
    )
    with pytest.raises(TooFewError):
        total_of(transport)
    assert [(stage, client) for stage, client, _ in transport.refusals] == [
        ("open", client) for client in range(5)
    ]
    assert all(reason in why for _, _, why in transport.refusals[:3])


def test_ciphertexts_of_a_second_run_are_not_given() -> None:
    transport = open_transport()
    transport.clients = {
        client: BfvSumClient(
            client,
            identity_of(client),
            FIVE,
            MemoryJournal(),
            runs=RunLimit(MemoryJournal(), FIVE.digest),
        )
        for client in range(5)
    }
    total_of(transport)
    server = BfvSumServer(FIVE, SERVER)
    with pytest.raises(TooFewError):
        server(replace(request(3, whole=True), run="another"), range(5), transport)
    assert [refusal[:2] for refusal in transport.refusals] == [("open", k) for k in range(5)]
    assert "takes part in 1 private run under one roster" in transport.refusals[0][2]


def test_ciphertexts_are_given_once() -> None:
    transport = open_transport()
    total_of(transport)
    asked = {c: m for stage, c, m, _ in transport.seen if stage == "open"}
    for client, message in asked.items():
        with pytest.raises(RefusedError, match="has no ciphertexts to give in this sum"):
            transport.ask("open", client, message)


def test_a_client_that_gives_another_ciphertext_than_it_promised_is_left_out_by_name() -> None:
    transport = open_transport()
    accomplice = Accomplice(ACCOMPLICE, identity_of(ACCOMPLICE), FIVE, MemoryJournal())
    accomplice.transport = transport
    transport.clients = {**transport.clients, ACCOMPLICE: accomplice}
    total = total_of(transport)
    assert total.clients == (0, 1, 2, 3)
    assert total.values.tolist() == plain_sum(transport, total.clients)
    ((gone,), reason) = total.failures, "client 4 gave other ciphertexts than it promised"
    assert (gone.client, reason in gone.reason) == (4, True)


def test_a_key_holder_adds_no_ciphertext_of_another_attempt() -> None:
    transport = open_transport()
    total_of(transport)
    old = [m for stage, _, m, _ in transport.seen if stage == "decrypt"]
    parts = [bytes(p) for p in verify_message(old[0], FIVE, "decrypt", AGGREGATOR).parts]
    again = LocalTransport(transport.clients, transport.vectors)
    reason = asked_to_decrypt(again, {}, lambda fresh: [*fresh[:4], parts[4]])
    assert "from another attempt" in reason


def test_a_client_with_another_view_is_not_in_the_sum() -> None:
    transport = open_transport()
    own = transport.clients[3]
    honest = own.answer
    own.answer = lambda stage, data, values, view="": honest(stage, data, values, "other")
    total = total_of(transport)
    assert total.clients == (0, 1, 2, 4)
    assert "another recipe" in total.failures[0].reason
    # A server that passes it on all the same is refused.
    with pytest.raises(RefusedError, match="client 3 received another recipe"):
        bypassed(open_transport())


def bypassed(transport: LocalTransport) -> None:
    """Run the stages by hand with one client of another view, and let the key-holder decrypt."""
    attempt_id = AttemptId("run", 0, 1, "00" * 16)

    def signed(stage: str, facts: dict[str, object], parts: Sequence[bytes] = ()) -> bytes:
        return sign_message(
            SignedMessage(attempt_id, stage, AGGREGATOR, facts, parts), FIVE, SERVER
        )

    everyone: dict[str, object] = {"cohort": list(range(5))}
    context = transport.ask("context", 0, signed("context", everyone))
    asked = signed("encrypt", everyone | {"length": 3}, [context])
    promises = [
        own.answer("encrypt", asked, lambda k=k: transport.vectors[k], "other" if k == 3 else "")
        for k, own in transport.clients.items()
    ]
    asked = signed("open", {"clients": list(range(5))}, promises)
    given = [transport.ask("open", client, asked) for client in transport.clients]
    transport.ask("decrypt", 0, signed("decrypt", {"survivors": [*range(5)], "length": 3}, given))


def test_each_client_finds_its_own_ciphertext_in_the_receipt() -> None:
    transport = open_transport()
    total = total_of(transport)
    sums = np.asarray(total.values, dtype=np.int64)
    for client, own in transport.clients.items():
        verify_receipt(total.receipt, FIVE, client, own.journal, sums)
    with pytest.raises(RefusedError, match="decrypted other sums"):
        verify_receipt(total.receipt, FIVE, 1, transport.clients[1].journal, sums + 1)
    with pytest.raises(RefusedError, match="own ciphertext is not in the receipt"):
        verify_receipt(total.receipt, FIVE, 1, transport.clients[2].journal, sums)
    left_out = open_transport()
    left_out.silent = {("decrypt", 0)}
    with pytest.raises(TooFewError):
        total_of(left_out)
    with pytest.raises(RefusedError, match="own ciphertext is not in the receipt"):
        verify_receipt(total.receipt, FIVE, 1, left_out.clients[1].journal, sums)


def test_a_key_holder_decrypts_a_round_once_but_for_the_same_sum() -> None:
    transport = open_transport()
    first = total_of(transport)
    again = LocalTransport(transport.clients, transport.vectors)
    assert total_of(again).values.tolist() == first.values.tolist()
    fewer = LocalTransport(transport.clients, transport.vectors, silent={("encrypt", 3)})
    with pytest.raises(TooFewError):
        total_of(fewer)
    assert "only for the same survivors and vectors" in fewer.refusals[0][2]
    other = LocalTransport(transport.clients, {**transport.vectors, 3: transport.vectors[3] + 1})
    with pytest.raises(TooFewError):
        total_of(other)
    assert "only for the same survivors and vectors" in other.refusals[0][2]


def test_a_message_is_encrypted_for_a_member_of_the_cohort_only() -> None:
    """The server cannot be the key-holder: it would have to sign as a client."""
    transport = open_transport()

    def usurp(stage: str, client: int, message: bytes) -> bytes:
        if (stage, client) != ("encrypt", 2):
            return message
        signed = verify_message(message, FIVE, stage, AGGREGATOR)
        _, public = bfv.draw_context()
        facts = {"cohort": [0, 1, 2, 3, 4]}
        own = sign_message(
            SignedMessage(signed.attempt_id, "context", 0, facts, (public,)), FIVE, SERVER
        )
        return sign_message(
            SignedMessage(signed.attempt_id, stage, AGGREGATOR, signed.facts, (own,)), FIVE, SERVER
        )

    transport.change = usurp
    assert total_of(transport).clients == (0, 1, 3, 4)
    assert transport.refusals == [
        ("encrypt", 2, "a message of stage context has an invalid signature")
    ]


def test_a_client_encrypts_once_in_an_attempt() -> None:
    transport = open_transport()
    total_of(transport)
    message = next(m for stage, client, m, _ in transport.seen if (stage, client) == ("encrypt", 1))
    with pytest.raises(RefusedError, match="has begun this attempt before"):
        transport.ask("encrypt", 1, message)


@settings(deadline=None, max_examples=30)
@given(st.binary(max_size=200))
def test_bytes_that_are_no_context_or_ciphertext_are_refused(content: bytes) -> None:
    _, public = CONTEXT
    with pytest.raises(RefusedError):
        bfv.encrypt(content, np.zeros(1, np.uint64))
    with pytest.raises(RefusedError):
        bfv.BfvTotal(public, 1).add([content])
    party = BfvSumClient(0, identity_of(0), FIVE, MemoryJournal())
    for stage in ("context", "encrypt", "open", "decrypt", "masked"):
        with pytest.raises(RefusedError):
            party.answer(stage, content, lambda: np.zeros(1, np.int64))
    if content:
        with pytest.raises(RefusedError):
            party.restore(content)


CONTEXT = bfv.draw_context()


def test_a_saved_key_holder_of_the_wrong_kind_is_refused() -> None:
    record = {"run": "r", "round": 0, "attempt": 1, "token": "00" * 16, "cohort": [0, 1, 2]}
    rest = {"context": "00", "view": "", "same": True, "parts": ["00"], "promised": [[1, "00"]]}
    party = BfvSumClient(0, identity_of(0), FIVE, MemoryJournal())
    party.restore(canonical_json(record | rest))
    assert party.save() == canonical_json(record | rest)
    for wrong in (
        {"context": 7},
        {"cohort": [1, 0]},
        {"view": 7},
        {"same": 1},
        {"parts": "00"},
        {"parts": [7]},
        {"promised": {"1": "00"}},
        {"promised": [[1]]},
        {"promised": [[1, 7]]},
        {"promised": [[-1, "00"]]},
        {"more": 1},
    ):
        with pytest.raises(RefusedError):
            party.restore(canonical_json(record | rest | wrong))
    with pytest.raises(RefusedError):
        party.restore(canonical_json(record))


def test_a_cut_ciphertext_is_no_vector() -> None:
    _, public = CONTEXT
    (part,) = bfv.encrypt(public, np.zeros(2, np.uint64))
    with pytest.raises(RefusedError, match="another number of values"):
        bfv.BfvTotal(public, 3).add([part])
    with pytest.raises(RefusedError):
        bfv.BfvTotal(public, 2).add([part[: len(part) // 2]])
