"""Masked sums in which a client shares secrets with neighbours that it draws itself."""

import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedbb.errors import PrivacyError, RefusedError, TooFewError
from fedbb.secagg.masked.client import STAGES
from fedbb.secagg.masked.graph import (
    count_agreements,
    draw_neighbours,
    shown_agreements,
    sign_survivors,
)
from fedbb.secagg.neighbours import MOST_ATTEMPTS, choose_neighbourhood
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.primitives.shamir import SHARE
from fedbb.secagg.protocol.messages import AttemptId, SignedMessage, sign_message, verify_message
from fedbb.secagg.protocol.roster import AGGREGATOR, Roster, read_roster, sign_roster
from fedbb.secagg.protocol.secure_aggregation import StageExchange
from helpers.secagg_clients import (
    ENROLMENT,
    SERVER,
    LocalTransport,
    counted,
    identity_of,
    make_roster,
    masked_client,
    masked_sum,
    open_transport,
    request,
)

CLIENTS = 12
TERMS = {"least": 9, "neighbours": 6, "neighbours_needed": 4}
ROSTER = make_roster(CLIENTS, **TERMS)


def sparse_transport(**terms: object) -> LocalTransport:
    return open_transport(CLIENTS, **{**TERMS, **terms})


def total_of(transport: LocalTransport, roster: Roster = ROSTER):  # type: ignore[no-untyped-def]
    return masked_sum(roster)(request(), range(CLIENTS), transport)


def ring_sum(transport: LocalTransport, clients: tuple[int, ...]) -> np.ndarray:
    whole = sum(np.rint(transport.vectors[c] * 2.0**40).astype(np.int64) for c in clients)
    return np.ldexp(np.asarray(whole).astype(np.float64), -40)


def test_the_sum_is_that_of_a_complete_graph_to_the_bit() -> None:
    sparse, complete = sparse_transport(), open_transport(CLIENTS, least=9)
    found = total_of(sparse)
    expected = masked_sum(make_roster(CLIENTS, least=9))(request(), range(CLIENTS), complete)
    assert found.values.tobytes() == expected.values.tobytes()
    assert found.clients == tuple(range(CLIENTS))


def test_clients_that_live_only_as_saved_bytes_give_the_same_sum() -> None:
    transport = sparse_transport()
    transport.restart = True
    assert total_of(transport).values.tobytes() == total_of(sparse_transport()).values.tobytes()


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("client", [0, 7])
def test_a_dropout_at_each_stage_gives_the_exact_sum_or_none(stage: str, client: int) -> None:
    transport = sparse_transport()
    transport.silent = {(stage, client)}
    found = total_of(transport)
    alive = tuple(k for k in range(CLIENTS) if k != client or stage in ("agree", "unmask"))
    assert found.clients == alive
    assert found.values.tobytes() == ring_sum(transport, alive).tobytes()


def test_random_dropouts_give_the_exact_sum_or_none() -> None:
    rng, outcomes = np.random.default_rng(0), Counter()
    for case in range(25):
        transport = open_transport(CLIENTS, name=f"case {case}", **TERMS)
        gone = rng.choice(CLIENTS, rng.integers(1, 5), replace=False).tolist()
        transport.silent = {(str(rng.choice(STAGES)), client) for client in gone}
        try:
            found = total_of(transport)
        except TooFewError:
            outcomes["none"] += 1
        else:
            outcomes["sum"] += 1
            assert found.values.tobytes() == ring_sum(transport, found.clients).tobytes()
    assert outcomes["sum"] >= 5
    assert outcomes["none"] >= 3


def test_a_client_whose_neighbours_are_gone_ends_the_attempt_and_reveals_nothing() -> None:
    terms = {"least": 8, "neighbours": 6, "neighbours_needed": 6}
    roster, transport = make_roster(CLIENTS, **terms), sparse_transport(**terms)
    transport.silent = {("masked", 3)}
    with pytest.raises(TooFewError, match="5 of the 6 neighbours of client"):
        total_of(transport, roster)
    assert not any(stage in ("agree", "unmask") for stage, *_ in transport.seen)


def test_a_false_share_of_a_neighbour_is_named_and_not_used() -> None:
    transport = sparse_transport()
    liar = transport.clients[4]
    honest = liar.answer

    def lie(stage, data, values, view=""):  # type: ignore[no-untyped-def]
        answer = honest(stage, data, values, view)
        if stage != "unmask":
            return answer
        told = verify_message(answer, ROSTER, stage, 4)
        seeds, masks = (bytes(part) for part in told.parts)
        false = bytes(SHARE - 1) + b"\1" + seeds[SHARE:]
        signed = replace(told, parts=(false, masks))
        return sign_message(signed, ROSTER, identity_of(4))

    liar.answer = lie  # type: ignore[method-assign]
    found = total_of(transport)
    assert found.values.tobytes() == ring_sum(transport, found.clients).tobytes()
    assert {failure.client for failure in found.false_shares} == {4}


# What a server that sends false messages could try.


def test_every_set_of_neighbours_is_drawn_alike_and_by_the_clients_own_bytes() -> None:
    roster = make_roster(6, least=5, neighbours=2, neighbours_needed=2)
    draw = counted("neighbours")
    seen = Counter(draw_neighbours(roster, range(6), 2, draw) for _ in range(4000))
    assert len(seen) == 10
    assert stats.chisquare(list(seen.values())).pvalue > 1e-4
    assert not any(2 in drawn for drawn in seen)


def announcements(roster: Roster, clients: dict[int, object]) -> tuple[AttemptId, dict[int, bytes]]:
    """Return what clients announce in an attempt of a server that follows its own rules."""
    attempt_id = AttemptId.draw("run", 1, 1, counted("attempt"))
    transport = LocalTransport(clients, {})  # type: ignore[arg-type]
    exchange = StageExchange(roster, SERVER, attempt_id, transport)
    found: dict[int, bytes] = {}
    exchange.broadcast(
        "keys",
        sorted(clients),
        lambda message, data: found.update({message.sender: data}),
        {"cohort": sorted(clients)},
    )
    return attempt_id, found


def show(roster: Roster, attempt_id: AttemptId, client: object, parts: dict[int, bytes]) -> bytes:
    """Show a client announcements, and return its answer."""
    facts = {"senders": sorted(parts)}
    message = SignedMessage(
        attempt_id, "shares", AGGREGATOR, facts, [parts[sender] for sender in sorted(parts)]
    )
    signed = sign_message(message, roster, SERVER)
    return client.answer("shares", signed, lambda: np.zeros(1))  # type: ignore[attr-defined]


@pytest.fixture
def announced():  # type: ignore[no-untyped-def]
    clients = {client: masked_client(client, ROSTER) for client in range(CLIENTS)}
    attempt_id, found = announcements(ROSTER, clients)
    victim = clients[0]
    drawn = victim.attempt.drawn  # type: ignore[union-attr]
    owners = {k for k, own in clients.items() if 0 in own.attempt.drawn}  # type: ignore[union-attr]
    return attempt_id, found, victim, {0, *drawn}, owners


def test_a_server_cannot_leave_out_a_neighbour_that_a_client_drew(announced) -> None:  # type: ignore[no-untyped-def]
    attempt_id, found, victim, drawn, owners = announced
    assert show(ROSTER, attempt_id, victim, {k: found[k] for k in drawn | owners})
    for gone in sorted(drawn):
        attempt_id, found, victim, drawn, _ = fresh()
        with pytest.raises(RefusedError, match="the cohort's keys are not complete"):
            show(ROSTER, attempt_id, victim, {k: found[k] for k in drawn - {gone}})


def fresh():  # type: ignore[no-untyped-def]
    clients = {client: masked_client(client, ROSTER) for client in range(CLIENTS)}
    attempt_id, found = announcements(ROSTER, clients)
    victim = clients[0]
    owners = {k for k, own in clients.items() if 0 in own.attempt.drawn}  # type: ignore[union-attr]
    return attempt_id, found, victim, {0, *victim.attempt.drawn}, owners  # type: ignore[union-attr]


def test_a_server_cannot_add_neighbours_of_its_own(announced) -> None:  # type: ignore[no-untyped-def]
    attempt_id, found, victim, drawn, owners = announced
    strangers = set(range(CLIENTS)) - drawn - owners
    assert strangers
    with pytest.raises(RefusedError, match="is not a neighbour of client 0"):
        show(ROSTER, attempt_id, victim, {k: found[k] for k in drawn | strangers})


def test_a_server_cannot_announce_keys_in_place_of_a_neighbour(announced) -> None:  # type: ignore[no-untyped-def]
    attempt_id, found, victim, drawn, _ = announced
    target = max(drawn)
    told = verify_message(found[target], ROSTER, "keys", target)
    forged = sign_message(replace(told, parts=(b"\1" * 32, b"\2" * 32)), ROSTER, Identity.draw())
    with pytest.raises(RefusedError, match="invalid signature"):
        show(ROSTER, attempt_id, victim, {**{k: found[k] for k in drawn}, target: forged})


def test_neighbours_that_were_told_another_cohort_are_refused() -> None:
    """A server that splits the cohort in two would leave few honest neighbours to a client."""
    clients = {client: masked_client(client, ROSTER) for client in range(CLIENTS)}
    attempt_id, found = announcements(ROSTER, clients)
    victim = clients[0]
    split = {k: masked_client(k, ROSTER, "other") for k in range(1, CLIENTS)}
    _, others = announcements(ROSTER, split)
    drawn = {0, *victim.attempt.drawn}  # type: ignore[union-attr]
    target = max(drawn)
    with pytest.raises(RefusedError, match=f"client {target} announced its keys for another"):
        show(ROSTER, attempt_id, victim, {**{k: found[k] for k in drawn}, target: others[target]})


def test_a_client_that_draws_other_than_the_rosters_number_is_left_out() -> None:
    transport = sparse_transport()
    cheat = masked_client(5, make_roster(CLIENTS, **{**TERMS, "neighbours_needed": 6}))
    honest = transport.clients[5].answer

    def lie(stage, data, values, view=""):  # type: ignore[no-untyped-def]
        answer = honest(stage, data, values, view)
        if stage != "keys":
            return answer
        told = verify_message(answer, ROSTER, stage, 5)
        facts = {**told.facts, "neighbours": told.facts["neighbours"][:2]}
        return sign_message(replace(told, facts=facts), ROSTER, cheat.identity)

    transport.clients[5].answer = lie  # type: ignore[method-assign]
    found = total_of(transport)
    assert found.clients == tuple(k for k in range(CLIENTS) if k != 5)
    assert "has not drawn 6 other clients" in found.failures[0].reason


def test_a_client_draws_anew_in_each_attempt_and_begins_few_of_them() -> None:
    """Otherwise a server could repeat a round until a client's neighbours are its accomplices."""
    client, drawn = masked_client(0, ROSTER), set()
    for number in range(1, MOST_ATTEMPTS + 2):
        attempt_id = AttemptId.draw("run", 1, number, counted(f"attempt {number}"))
        facts = {"cohort": list(range(CLIENTS))}
        message = SignedMessage(attempt_id, "keys", AGGREGATOR, facts)
        data = sign_message(message, ROSTER, SERVER)
        if number <= MOST_ATTEMPTS:
            client.answer("keys", data, lambda: np.zeros(1))
            drawn.add(client.attempt.drawn)  # type: ignore[union-attr]
        else:
            with pytest.raises(RefusedError, match=f"has begun {MOST_ATTEMPTS} attempts"):
                client.answer("keys", data, lambda: np.zeros(1))
    assert len(drawn) > MOST_ATTEMPTS / 2


def change_unmasking(transport: LocalTransport, change) -> None:  # type: ignore[no-untyped-def]
    """Let the server send other facts or parts in the last stage."""

    def lie(stage: str, client: int, message: bytes) -> bytes:
        if stage != "unmask":
            return message
        told = verify_message(message, ROSTER, stage, AGGREGATOR)
        facts, parts = change(dict(told.facts), [bytes(part) for part in told.parts])
        return sign_message(replace(told, facts=facts, parts=parts), ROSTER, SERVER)

    transport.change = lie


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda f, p: ({**f, "signers": f["signers"][:8]}, [p[0][: 8 * 64]]), "8 survivors agree"),
        (lambda f, p: ({**f, "changed": [0]}, p), "client 0 has agreed to another list"),
        (lambda f, p: (f, [p[0][64:128] + p[0][64:]]), "client 0 has agreed to another list"),
        (lambda f, p: ({**f, "signers": [*f["signers"], 40]}, p), "is not among the survivors"),
        (lambda f, p: (f, [p[0][:-64]]), "parts of a wrong length"),
        (
            lambda f, p: ({**f, "alive": f["alive"][1:], "dead": f["alive"][:1]}, p),
            "not those that this client has agreed to",
        ),
    ],
)
def test_clients_unmask_only_what_enough_of_all_survivors_signed(change, reason) -> None:  # type: ignore[no-untyped-def]
    """The threshold of the list of survivors counts the whole cohort, not a neighbourhood (P4)."""
    transport = sparse_transport()
    change_unmasking(transport, change)
    with pytest.raises(TooFewError):
        total_of(transport)
    told = [why for stage, _, why in transport.refusals if stage == "unmask"]
    assert len(told) == CLIENTS
    assert all(reason in why for why in told)


@pytest.mark.parametrize("other", ["survivors", "attempt", "roster"])
def test_a_signature_of_another_list_attempt_or_roster_does_not_count(other: str) -> None:
    """A server tells clients two lists of survivors, and shows those of one the others' signatures.

    Otherwise it could remove the self mask and the pairwise masks of one client.
    """
    attempt_id = AttemptId.draw("run", 1, 1, counted("attempt"))
    survivors = tuple(range(CLIENTS))
    signed = {
        "survivors": (ROSTER, attempt_id, survivors[1:]),
        "attempt": (ROSTER, AttemptId.draw("run", 1, 2, counted("next")), survivors),
        "roster": (make_roster(CLIENTS, **{**TERMS, "least": 8}), attempt_id, survivors),
    }[other]
    shown = {}
    for client in survivors:
        roster, attempt, agreed = signed if client == 5 else (ROSTER, attempt_id, survivors)
        _, (signature,) = sign_survivors(roster, attempt, identity_of(client), agreed, same=True)
        shown[client] = (signature, True)
    facts, parts = shown_agreements(ROSTER, shown)
    message = SignedMessage(attempt_id, "unmask", AGGREGATOR, facts, parts)
    with pytest.raises(RefusedError, match="client 5 has agreed to another list of survivors"):
        count_agreements(message, ROSTER, survivors)


def test_clients_with_another_view_give_noise() -> None:
    transport = sparse_transport()
    ask = transport.clients[3].answer
    transport.clients[3].answer = lambda stage, data, values, view="": ask(  # type: ignore[method-assign]
        stage, data, values, "another view"
    )
    found = total_of(transport)
    assert np.abs(found.values - ring_sum(transport, found.clients)).max() > 2**15


def test_shares_of_fewer_than_the_needed_neighbours_recover_nothing() -> None:
    """A client's secrets are divided among its own neighbours, with the roster's threshold."""
    transport = sparse_transport()
    held: dict[int, int] = Counter()

    def watch(stage: str, client: int, message: bytes) -> bytes:
        if stage == "agree":
            for owner in transport.clients[client].attempt.held:  # type: ignore[attr-defined]
                held[owner] += 1
        return message

    transport.change = watch
    total_of(transport)
    assert held == dict.fromkeys(range(CLIENTS), 6)


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ({"neighbours_needed": 3}, "more than half of a client's neighbours"),
        ({"neighbours_needed": 7}, "more than half of a client's neighbours"),
        ({"neighbours": 0}, "more than half of a client's neighbours"),
        ({"neighbours": 9, "neighbours_needed": 9}, "cannot draw 9 neighbours in a sum over 9"),
    ],
)
def test_a_roster_with_impossible_neighbours_is_refused(terms: dict[str, int], reason: str) -> None:
    with pytest.raises(PrivacyError, match=reason):
        make_roster(CLIENTS, **{**TERMS, **terms})


def test_neighbours_are_signed_with_the_roster() -> None:
    signed = sign_roster(ROSTER, ENROLMENT)
    assert read_roster(signed, ENROLMENT.public) == ROSTER
    assert make_roster(CLIENTS, least=9).digest != ROSTER.digest
    fewer = make_roster(CLIENTS, **{**TERMS, "neighbours_needed": 5})
    assert fewer.digest != ROSTER.digest
    assert b"neighbours" not in sign_roster(make_roster(CLIENTS, least=9), ENROLMENT)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_thousand_clients_with_100000_numbers_are_summed_within_60_seconds() -> None:
    clients, length = 1000, 100_000
    least = 2 * clients // 3 + 1
    graph = choose_neighbourhood(least, clients, clients // 10, 0.05)
    terms = {"neighbours": graph.drawn, "neighbours_needed": graph.needed}
    roster = make_roster(clients, least=least, **terms)
    vector = np.random.default_rng(0).normal(size=length)
    parties = {client: masked_client(client, roster) for client in range(clients)}
    gone = np.random.default_rng(1).choice(clients, 30, replace=False).tolist()
    silent = {("masked", client) for client in gone}
    transport = Forgetful(parties, dict.fromkeys(range(clients), vector), silent)
    began = time.process_time()
    total = masked_sum(roster)(request(length), range(clients), transport)
    # All parties take turns in this process, so its own time is what they took together.
    assert time.process_time() - began < 60
    assert len(total.clients) == clients - 30
    assert np.abs(total.values - (clients - 30) * vector).max() <= clients * 2.0**-41 + 1e-9


class Forgetful(LocalTransport):
    """A transport that keeps nothing of what passes."""

    def exchange(self, stage, messages):  # type: ignore[no-untyped-def]
        for client, answer in super().exchange(stage, messages):
            self.seen.clear()
            yield client, answer
