import itertools
import math
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedbb.errors import PrivacyError, TooFewError
from fedbb.records import ClientFailure
from fedbb.secagg.masked.client import STAGES
from fedbb.secagg.masked.server import MaskedSumServer
from fedbb.secagg.primitives.fixed_point import add_masks
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.primitives.shamir import SHARE, combine
from fedbb.secagg.protocol.key_derivation import self_mask_key
from fedbb.secagg.protocol.messages import AttemptId, SignedMessage, sign_message, verify_message
from fedbb.secagg.protocol.roster import AGGREGATOR
from fedbb.secagg.protocol.secure_aggregation import SumResult
from helpers.secagg_clients import (
    SERVER,
    LocalTransport,
    identity_of,
    make_roster,
    masked_client,
    masked_sum,
    open_transport,
    request,
)
from helpers.tally import Tally

FIVE = make_roster(5)


def total_of(transport: LocalTransport, clients: int = 5, number: int = 1) -> SumResult:
    return masked_sum(make_roster(clients))(request(number=number), range(clients), transport)


def ring_sum(transport: LocalTransport, clients: tuple[int, ...]) -> np.ndarray:
    """Return the sum over some clients in fixed point, exactly."""
    whole = sum(np.rint(transport.vectors[c] * 2.0**40).astype(np.int64) for c in clients)
    return np.ldexp(np.asarray(whole).astype(np.float64), -40)


@pytest.mark.parametrize("clients", [3, 4, 5, 10])
def test_a_masked_sum_is_the_plain_one_but_for_rounding(clients: int) -> None:
    transport = open_transport(clients)
    total = total_of(transport, clients)
    assert total.clients == tuple(range(clients))
    plain = np.array(
        [math.fsum(column) for column in zip(*transport.vectors.values(), strict=True)]
    )
    assert np.abs(total.values - plain).max() <= clients * 2.0**-41
    assert (total.attempts, total.failures) == (1, ())


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.lists(st.floats(-(2.0**20), 2.0**20), min_size=4, max_size=4), min_size=3, max_size=4
    )
)
def test_no_vector_moves_the_sum_off_by_more_than_half_a_place_a_client(
    rows: list[list[float]],
) -> None:
    roster = make_roster(len(rows))
    vectors = {client: np.array(row) for client, row in enumerate(rows)}
    transport = LocalTransport(
        {client: masked_client(client, roster) for client in vectors}, vectors
    )
    total = masked_sum(roster)(request(4), range(len(rows)), transport)
    plain = np.array([math.fsum(column) for column in zip(*rows, strict=True)])
    # A float64 near 2^22 has 2^-31 between neighbors, which the result is rounded to.
    bound = len(rows) * 2.0**-41 + np.spacing(np.abs(plain))
    assert (np.abs(total.values - plain) <= bound).all()


def test_whole_numbers_are_summed_exactly() -> None:
    roster = make_roster(3)
    vectors = {0: np.array([2**60, -5]), 1: np.array([7, -(2**60)]), 2: np.array([0, 1])}
    transport = LocalTransport(
        {client: masked_client(client, roster) for client in vectors}, vectors
    )
    total = masked_sum(roster)(request(2, whole=True), range(3), transport)
    assert total.values.dtype == np.int64
    assert total.values.tolist() == [2**60 + 7, -(2**60) - 4]


def test_fresh_keys_change_every_masked_vector_and_no_bit_of_the_sum() -> None:
    one, two = open_transport(name="one"), open_transport(name="two")
    assert total_of(one).values.tobytes() == total_of(two).values.tobytes()
    sent = [{c: a for s, c, _, a in transport.seen if s == "masked"} for transport in (one, two)]
    assert all(sent[0][client] != sent[1][client] for client in range(5))


def test_the_order_of_answers_changes_no_bit() -> None:
    usual, reverse = open_transport(), open_transport()
    exchange = reverse.exchange
    reverse.exchange = lambda stage, messages: exchange(  # type: ignore[method-assign]
        stage, dict(reversed(messages.items()))
    )
    assert total_of(usual).values.tobytes() == total_of(reverse).values.tobytes()


def test_clients_that_live_only_as_saved_bytes_between_stages_give_the_same_sum() -> None:
    transport = open_transport()
    transport.restart = True
    assert total_of(transport).values.tobytes() == total_of(open_transport()).values.tobytes()


def test_masks_of_pairs_cancel() -> None:
    """All masked vectors less the own masks add up to nothing but the vectors."""
    transport, seeds = open_transport(length=4), {}

    def watch(stage: str, client: int, message: bytes) -> bytes:
        if stage == "masked":
            seeds[client] = transport.clients[client].attempt.seed  # type: ignore[attr-defined]
            transport.vectors[client][:] = 0  # type: ignore[index]
        return message

    transport.change = watch
    masked_sum(FIVE)(request(4), range(5), transport)
    total = np.zeros(4, dtype=np.uint64)
    for stage, client, _, answer in transport.seen:
        if stage == "masked":
            signed = verify_message(answer, FIVE, "masked", client)
            total += np.frombuffer(signed.parts[0], "<u8")
            add_masks(total, [], [self_mask_key(FIVE, signed.attempt_id, client, seeds[client])])
    assert total.tolist() == [0] * 4


@pytest.mark.parametrize(("stage", "client"), list(itertools.product(STAGES, range(5))))
def test_one_of_five_may_fall_silent_at_any_stage(stage: str, client: int, tally: Tally) -> None:
    transport = open_transport()
    transport.silent = {(stage, client)}
    total = total_of(transport)
    others = tuple(other for other in range(5) if other != client)
    counted_in = tuple(range(5)) if stage in ("agree", "unmask") else others
    assert total.clients == counted_in
    tally.results([total.values.tobytes()], ring_sum(transport, counted_in).tobytes())
    assert total.attempts == (2 if stage in ("keys", "shares") else 1)
    if counted_in == others:
        assert total.failures == (ClientFailure(client, f"gave no answer in stage {stage}"),)


@pytest.mark.parametrize("gone", list(itertools.combinations(range(10), 3))[::9])
def test_three_of_ten_may_fall_silent_after_masking_began(gone: tuple[int, ...]) -> None:
    transport = open_transport(10)
    transport.silent = {("masked", client) for client in gone}
    total = total_of(transport, 10)
    assert total.clients == tuple(client for client in range(10) if client not in gone)
    assert total.values.tobytes() == ring_sum(transport, total.clients).tobytes()


def test_some_may_fall_silent_at_every_stage_of_one_sum() -> None:
    transport = open_transport(10)
    transport.silent = {("keys", 0), ("shares", 1), ("masked", 2), ("agree", 3)}
    total = total_of(transport, 10)
    assert total.clients == (3, 4, 5, 6, 7, 8, 9)
    assert total.attempts == 3
    assert total.values.tobytes() == ring_sum(transport, total.clients).tobytes()
    assert [absence.client for absence in total.failures] == [0, 1, 2]


@pytest.mark.parametrize("stage", ["masked", "agree", "unmask"])
def test_with_more_gone_than_can_be_spared_there_is_no_sum_and_nothing_is_revealed(
    stage: str,
) -> None:
    """Of five, four are needed: with three the server has at most three shares of any secret."""
    transport = open_transport()
    transport.silent = {(stage, 1), (stage, 3)}
    with pytest.raises(TooFewError, match=r"3 clients are left .* 4 are needed .*client 1 gave no"):
        total_of(transport)
    unmasked = [client for seen, client, _, _ in transport.seen if seen == "unmask"]
    assert unmasked == ([0, 2, 4] if stage == "unmask" else [])


def test_shares_that_are_too_few_give_another_secret() -> None:
    """Three of the four shares that are needed, taken from a captured unmask stage."""
    transport, seeds = open_transport(), {}

    def watch(stage: str, client: int, message: bytes) -> bytes:
        if stage == "masked":
            seeds[client] = transport.clients[client].attempt.seed  # type: ignore[attr-defined]
        return message

    transport.change = watch
    total_of(transport)
    given = {
        client: bytes(verify_message(answer, FIVE, "unmask", client).parts[0])
        for stage, client, _, answer in transport.seen
        if stage == "unmask"
    }
    shares = {client: content[:33] for client, content in given.items()}
    assert combine({client: shares[client] for client in range(4)}) == seeds[0]
    assert combine({client: shares[client] for client in range(3)}) != seeds[0]


def interrupted() -> LocalTransport:
    """Return a transport where clients 0, 2 and 4 have unmasked a sum that never came about."""
    transport = open_transport()
    transport.silent = {("unmask", 1), ("unmask", 3)}
    with pytest.raises(TooFewError):
        total_of(transport)
    return LocalTransport(transport.clients, transport.vectors, seen=transport.seen)


def test_after_too_few_the_same_question_is_answered_again_under_fresh_keys() -> None:
    transport = interrupted()
    total = masked_sum(FIVE, "later")(request(), range(5), transport)
    assert total.values.tobytes() == ring_sum(transport, tuple(range(5))).tobytes()
    keys = [answer for stage, _, _, answer in transport.seen if stage == "keys"]
    assert len(set(keys)) == len(keys) == 10


def test_a_round_that_was_unmasked_is_not_unmasked_over_fewer_clients() -> None:
    transport = interrupted()
    with pytest.raises(TooFewError, match="after stage unmask"):
        masked_sum(FIVE, "later")(request(), [0, 1, 2, 4], transport)
    assert [client for stage, client, _ in transport.refusals if stage == "unmask"] == [0, 2, 4]


def test_a_round_that_was_unmasked_is_not_unmasked_with_another_vector_not_even_changed_back() -> (
    None
):
    transport = interrupted()
    before = transport.vectors[1]
    for name, vector in (("changed", before + 1), ("back", before)):
        transport.vectors = {**transport.vectors, 1: vector}
        with pytest.raises(TooFewError, match="after stage unmask"):
            masked_sum(FIVE, name)(request(), range(5), transport)
    told = [refusal for refusal in transport.refusals if refusal[1] == 0]
    assert [stage for stage, _, _ in told] == ["unmask", "unmask"]
    assert "only for the same survivors and vectors" in told[0][2]


def test_a_server_that_withholds_who_changed_its_vector_gets_no_second_sum() -> None:
    """It starts client 1 from another model, and shows the others all agreements but that one."""
    transport = interrupted()
    transport.vectors = {**transport.vectors, 1: transport.vectors[1] + 1}

    def withhold(stage: str, client: int, message: bytes) -> bytes:
        if stage != "unmask":
            return message
        signed = verify_message(message, FIVE, stage, AGGREGATOR)
        shown = [
            part for part in signed.parts if verify_message(part, FIVE, "agree", None).sender != 1
        ]
        return sign_message(replace(signed, parts=shown), FIVE, SERVER)

    transport.change = withhold
    with pytest.raises(TooFewError, match="after stage unmask"):
        masked_sum(FIVE, "later")(request(), range(5), transport)
    assert [client for stage, client, _ in transport.refusals if stage == "unmask"] == [0, 2, 4]


def test_a_client_that_trains_to_other_bits_is_no_hindrance_before_a_sum_is_unmasked() -> None:
    transport = open_transport()
    transport.silent = {("masked", 1), ("masked", 3)}
    with pytest.raises(TooFewError):
        total_of(transport)
    again = LocalTransport(
        transport.clients, {client: row * 2 for client, row in transport.vectors.items()}
    )
    total = masked_sum(FIVE, "later")(request(), range(5), again)
    assert total.values.tobytes() == ring_sum(again, tuple(range(5))).tobytes()


def test_fewer_than_three_clients_are_never_summed() -> None:
    with pytest.raises(PrivacyError, match="needs 3 clients or more, not 2"):
        make_roster(2)
    with pytest.raises(TooFewError, match=r"2 clients are left .* and 3 are needed"):
        masked_sum(FIVE)(request(), [0, 1], open_transport())
    transport = open_transport(3)
    transport.silent = {("keys", 1)}
    with pytest.raises(TooFewError, match="2 clients are left"):
        total_of(transport, 3)


def test_a_least_cohort_above_three_is_kept() -> None:
    roster = make_roster(5, least=5)
    parties = {client: masked_client(client, roster) for client in range(5)}
    transport = LocalTransport(parties, open_transport().vectors, silent={("masked", 2)})
    with pytest.raises(TooFewError, match="4 clients are left after stage masked"):
        masked_sum(roster)(request(), range(5), transport)


def test_a_part_of_the_roster_can_be_summed() -> None:
    transport = open_transport(10)
    total = masked_sum(make_roster(10))(request(), [7, 2, 5], transport)
    assert total.clients == (2, 5, 7)
    assert total.values.tobytes() == ring_sum(transport, (2, 5, 7)).tobytes()


def test_a_client_that_is_not_in_the_roster_is_not_asked() -> None:
    with pytest.raises(PrivacyError, match="client 5 is not in the roster"):
        masked_sum(FIVE)(request(), range(6), open_transport())


def test_an_answer_that_cannot_be_used_is_as_good_as_none() -> None:
    transport = open_transport()
    exchange = transport.exchange

    def spoil(stage, messages):  # type: ignore[no-untyped-def]
        for client, answer in exchange(stage, messages):
            yield client, answer[:-1] if (stage, client) == ("masked", 2) else answer
            yield client, b"and once more"
            yield 99, answer

    transport.exchange = spoil  # type: ignore[method-assign]
    total = total_of(transport)
    assert total.clients == (0, 1, 3, 4)
    assert total.failures[0].reason.startswith("its answer in stage masked was refused: a message")
    assert total.values.tobytes() == ring_sum(transport, total.clients).tobytes()


@pytest.mark.parametrize("numbers", [0, 1, 39, 41])
def test_a_vector_of_another_length_is_refused_even_if_it_could_be_broadcast(numbers: int) -> None:
    transport = open_transport()
    exchange = transport.exchange

    def cut(stage, messages):  # type: ignore[no-untyped-def]
        for client, answer in exchange(stage, messages):
            if (stage, client) == ("masked", 2):
                signed = verify_message(answer, FIVE, stage, client)
                other = replace(signed, parts=(bytes(8 * numbers),))
                answer = sign_message(other, FIVE, identity_of(client))
            yield client, answer

    transport.exchange = cut  # type: ignore[method-assign]
    total = total_of(transport)
    assert total.clients == (0, 1, 3, 4)
    assert "it is not the requested vector" in total.failures[0].reason
    assert total.values.tobytes() == ring_sum(transport, total.clients).tobytes()


def with_liars(transport: LocalTransport, liars: set[int]) -> LocalTransport:
    """Let some clients give false shares of everybody's secrets."""
    exchange = transport.exchange

    def lie(stage, messages):  # type: ignore[no-untyped-def]
        for client, answer in exchange(stage, messages):
            if stage == "unmask" and client in liars:
                signed = verify_message(answer, FIVE, "unmask", client)
                parts = [_spoiled(bytes(part), client) for part in signed.parts]
                false = SignedMessage(signed.attempt_id, "unmask", client, {}, parts)
                answer = sign_message(false, FIVE, identity_of(client))
            yield client, answer

    transport.exchange = lie  # type: ignore[method-assign]
    return transport


def _spoiled(shares: bytes, client: int) -> bytes:
    spoiled = bytearray(shares)
    # Each at another place: equal errors of two clients may cancel out.
    for place in range(20 + client, len(shares), SHARE):
        spoiled[place] ^= 1
    return bytes(spoiled)


@pytest.mark.parametrize("liar", [0, 2, 4])
def test_one_false_share_does_not_end_the_sum_and_its_giver_is_named(
    liar: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A9: four of five shares are enough, and the owner's commitment tells which four."""
    transport = with_liars(open_transport(), {liar})
    total = total_of(transport)
    assert total.values.tobytes() == ring_sum(transport, total.clients).tobytes()
    # A false share that is not among the first four is not in the way.
    named = [] if liar == 4 else [ClientFailure(liar, FALSE.format(0))]
    assert list(total.false_shares) == named
    assert caplog.text.count(f"client {liar} gave a share") == len(named)


FALSE = "gave a share of client {}'s secret that does not fit the others"


def test_false_shares_beyond_the_spare_ones_stop_the_sum_instead_of_spoiling_it() -> None:
    with pytest.raises(PrivacyError, match=r"no 4 of 5 shares of client 0's secret .*no sum"):
        total_of(with_liars(open_transport(), {0, 1}))
    transport = open_transport()
    transport.silent = {("masked", 1)}
    with pytest.raises(PrivacyError, match="no 4 of 4 shares of client 0's secret"):
        total_of(with_liars(transport, {3}))


@pytest.mark.parametrize(
    "facts", [{"survivors": [0, 1, 2, 3], "same": True}, {"survivors": [0, 1, 2, 3, 4]}]
)
def test_a_client_that_agrees_to_something_else_does_not_stop_the_others(
    facts: dict[str, object],
) -> None:
    transport = open_transport()
    exchange = transport.exchange

    def differ(stage, messages):  # type: ignore[no-untyped-def]
        for client, answer in exchange(stage, messages):
            if (stage, client) == ("agree", 0):
                attempt_id = verify_message(answer, FIVE, stage, client).attempt_id
                yield (
                    client,
                    sign_message(SignedMessage(attempt_id, stage, 0, facts), FIVE, identity_of(0)),
                )
            else:
                yield client, answer

    transport.exchange = differ  # type: ignore[method-assign]
    total = total_of(transport)
    assert total.values.tobytes() == ring_sum(transport, tuple(range(5))).tobytes()
    assert [client for stage, client, _, _ in transport.seen if stage == "unmask"] == [1, 2, 3, 4]


def test_the_server_must_be_the_one_in_the_roster() -> None:
    with pytest.raises(PrivacyError, match="has another key for the aggregator"):
        MaskedSumServer(FIVE, Identity(bytes(32)))
    assert MaskedSumServer(FIVE, SERVER).roster is FIVE


LENGTH = 2**14


def masked_vector(value: float, name: str = "uniform") -> np.ndarray:
    """Return client 2's masked vector, all of whose numbers were the same before."""
    parties = {client: masked_client(client, FIVE, name) for client in range(5)}
    transport = LocalTransport(parties, {client: np.full(LENGTH, value) for client in range(5)})
    masked_sum(FIVE)(request(LENGTH), range(5), transport)
    (sent,) = [
        answer for stage, client, _, answer in transport.seen if (stage, client) == ("masked", 2)
    ]
    return np.frombuffer(verify_message(sent, FIVE, "masked", 2).parts[0], "<u8")


@pytest.mark.parametrize("value", [0.0, 1.0, -(2.0**19)])
def test_a_masked_vector_is_uniform_whatever_it_hides(value: float) -> None:
    content = masked_vector(value).view(np.uint8).reshape(LENGTH, 8)
    for column in (content[:, 0], content[:, 5], content[:, 7], content.reshape(-1)):
        assert stats.chisquare(np.bincount(column, minlength=256)).pvalue > 1e-3


def test_a_masked_vector_does_not_depend_on_what_it_hides() -> None:
    """Under other keys, vectors that hide 0 and 2^19 fall into the same bins alike."""
    bins = [
        np.bincount(masked_vector(value, f"hides {value}").view(np.uint8)[7::8] >> 3, minlength=32)
        for value in (0.0, 2.0**19)
    ]
    assert stats.chi2_contingency(np.array(bins)).pvalue > 1e-3


def test_under_the_same_masks_vectors_differ_by_what_they_hide_and_no_more() -> None:
    """Which is why keys must be fresh: the difference of two would tell all."""
    one, two = masked_vector(0.0), masked_vector(3.0)
    assert set((two - one).tolist()) == {3 * 2**40}


def test_no_two_attempts_have_the_same_token() -> None:
    assert AttemptId.draw("run", 1, 1, os.urandom) != AttemptId.draw("run", 1, 1, os.urandom)
