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
from fedbb.secagg.masked.attempt import STAGES
from fedbb.secagg.masked.server import MaskedSum
from fedbb.secagg.primitives.key_derivation import own_key
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.primitives.masks import add_masks
from fedbb.secagg.primitives.shamir import combine
from fedbb.secagg.protocol.messages import Letter, Occasion, seal, unseal
from fedbb.secagg.protocol.roster import AGGREGATOR
from fedbb.secagg.secure_aggregation import Total
from helpers.secagg_clients import (
    SERVER,
    Table,
    about,
    identity_of,
    make_roster,
    masked_party,
    masked_sum,
    sit_down,
)

FIVE = make_roster(5)


def total_of(table: Table, clients: int = 5, number: int = 1) -> Total:
    return masked_sum(make_roster(clients))(about(number=number), range(clients), table)


def ring_sum(table: Table, clients: tuple[int, ...]) -> np.ndarray:
    """Return the sum over some clients in fixed point, exactly."""
    whole = sum(np.rint(table.vectors[c] * 2.0**40).astype(np.int64) for c in clients)
    return np.ldexp(np.asarray(whole).astype(np.float64), -40)


@pytest.mark.parametrize("clients", [3, 4, 5, 10])
def test_a_masked_sum_is_the_plain_one_but_for_rounding(clients: int) -> None:
    table = sit_down(clients)
    total = total_of(table, clients)
    assert total.clients == tuple(range(clients))
    plain = np.array([math.fsum(column) for column in zip(*table.vectors.values(), strict=True)])
    assert np.abs(total.values - plain).max() <= clients * 2.0**-41
    assert (total.attempts, total.absences) == (1, ())


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
    table = Table({client: masked_party(client, roster) for client in vectors}, vectors)
    total = masked_sum(roster)(about(4), range(len(rows)), table)
    plain = np.array([math.fsum(column) for column in zip(*rows, strict=True)])
    # A float64 near 2^22 has 2^-31 between neighbors, which the result is rounded to.
    bound = len(rows) * 2.0**-41 + np.spacing(np.abs(plain))
    assert (np.abs(total.values - plain) <= bound).all()


def test_whole_numbers_are_summed_exactly() -> None:
    roster = make_roster(3)
    vectors = {0: np.array([2**60, -5]), 1: np.array([7, -(2**60)]), 2: np.array([0, 1])}
    table = Table({client: masked_party(client, roster) for client in vectors}, vectors)
    total = masked_sum(roster)(about(2, whole=True), range(3), table)
    assert total.values.dtype == np.int64
    assert total.values.tolist() == [2**60 + 7, -(2**60) - 4]


def test_fresh_keys_change_every_masked_vector_and_no_bit_of_the_sum() -> None:
    one, two = sit_down(name="one"), sit_down(name="two")
    assert total_of(one).values.tobytes() == total_of(two).values.tobytes()
    sent = [{c: a for s, c, _, a in table.seen if s == "masked"} for table in (one, two)]
    assert all(sent[0][client] != sent[1][client] for client in range(5))


def test_the_order_of_answers_changes_no_bit() -> None:
    usual, reverse = sit_down(), sit_down()
    exchange = reverse.exchange
    reverse.exchange = lambda stage, messages: exchange(  # type: ignore[method-assign]
        stage, dict(reversed(messages.items()))
    )
    assert total_of(usual).values.tobytes() == total_of(reverse).values.tobytes()


def test_parties_that_live_only_as_saved_bytes_between_stages_give_the_same_sum() -> None:
    table = sit_down()
    table.restart = True
    assert total_of(table).values.tobytes() == total_of(sit_down()).values.tobytes()


def test_masks_of_pairs_cancel() -> None:
    """All masked vectors less the own masks add up to nothing but the vectors."""
    table, seeds = sit_down(length=4), {}

    def watch(stage: str, client: int, message: bytes) -> bytes:
        if stage == "masked":
            seeds[client] = table.parties[client].attempt.seed  # type: ignore[attr-defined]
            table.vectors[client][:] = 0  # type: ignore[index]
        return message

    table.change = watch
    masked_sum(FIVE)(about(4), range(5), table)
    total = np.zeros(4, dtype=np.uint64)
    for stage, client, _, answer in table.seen:
        if stage == "masked":
            letter = unseal(answer, FIVE, "masked", client)
            total += np.frombuffer(letter.parts[0], "<u8")
            add_masks(total, [], [own_key(FIVE, letter.occasion, client, seeds[client])])
    assert total.tolist() == [0] * 4


@pytest.mark.parametrize(("stage", "client"), list(itertools.product(STAGES, range(5))))
def test_one_of_five_may_fall_silent_at_any_stage(stage: str, client: int) -> None:
    table = sit_down()
    table.silent = {(stage, client)}
    total = total_of(table)
    others = tuple(other for other in range(5) if other != client)
    counted_in = tuple(range(5)) if stage in ("agree", "unmask") else others
    assert total.clients == counted_in
    assert total.values.tobytes() == ring_sum(table, counted_in).tobytes()
    assert total.attempts == (2 if stage in ("keys", "shares") else 1)
    if counted_in == others:
        assert total.absences == (ClientFailure(client, f"gave no answer in stage {stage}"),)


@pytest.mark.parametrize("gone", list(itertools.combinations(range(10), 3))[::9])
def test_three_of_ten_may_fall_silent_after_masking_began(gone: tuple[int, ...]) -> None:
    table = sit_down(10)
    table.silent = {("masked", client) for client in gone}
    total = total_of(table, 10)
    assert total.clients == tuple(client for client in range(10) if client not in gone)
    assert total.values.tobytes() == ring_sum(table, total.clients).tobytes()


def test_some_may_fall_silent_at_every_stage_of_one_sum() -> None:
    table = sit_down(10)
    table.silent = {("keys", 0), ("shares", 1), ("masked", 2), ("agree", 3)}
    total = total_of(table, 10)
    assert total.clients == (3, 4, 5, 6, 7, 8, 9)
    assert total.attempts == 3
    assert total.values.tobytes() == ring_sum(table, total.clients).tobytes()
    assert [absence.client for absence in total.absences] == [0, 1, 2]


@pytest.mark.parametrize("stage", ["masked", "agree", "unmask"])
def test_with_more_gone_than_can_be_spared_there_is_no_sum_and_nothing_is_revealed(
    stage: str,
) -> None:
    """Of five, four are needed: with three the server has at most three shares of any secret."""
    table = sit_down()
    table.silent = {(stage, 1), (stage, 3)}
    with pytest.raises(TooFewError, match=r"3 clients are left .* 4 are needed .*client 1 gave no"):
        total_of(table)
    unmasked = [client for seen, client, _, _ in table.seen if seen == "unmask"]
    assert unmasked == ([0, 2, 4] if stage == "unmask" else [])


def test_shares_that_are_too_few_give_another_secret() -> None:
    """Three of the four shares that are needed, taken from a captured unmask stage."""
    table, seeds = sit_down(), {}

    def watch(stage: str, client: int, message: bytes) -> bytes:
        if stage == "masked":
            seeds[client] = table.parties[client].attempt.seed  # type: ignore[attr-defined]
        return message

    table.change = watch
    total_of(table)
    given = {
        client: bytes(unseal(answer, FIVE, "unmask", client).parts[0])
        for stage, client, _, answer in table.seen
        if stage == "unmask"
    }
    shares = {client: content[:33] for client, content in given.items()}
    assert combine({client: shares[client] for client in range(4)}) == seeds[0]
    assert combine({client: shares[client] for client in range(3)}) != seeds[0]


def interrupted() -> Table:
    """Return a table where clients 0, 2 and 4 have unmasked a sum that never came about."""
    table = sit_down()
    table.silent = {("unmask", 1), ("unmask", 3)}
    with pytest.raises(TooFewError):
        total_of(table)
    return Table(table.parties, table.vectors, seen=table.seen)


def test_after_too_few_the_same_question_is_answered_again_under_fresh_keys() -> None:
    table = interrupted()
    total = masked_sum(FIVE, "later")(about(), range(5), table)
    assert total.values.tobytes() == ring_sum(table, tuple(range(5))).tobytes()
    keys = [answer for stage, _, _, answer in table.seen if stage == "keys"]
    assert len(set(keys)) == len(keys) == 10


def test_a_round_that_was_unmasked_is_not_unmasked_over_fewer_clients() -> None:
    table = interrupted()
    with pytest.raises(TooFewError, match="after stage unmask"):
        masked_sum(FIVE, "later")(about(), [0, 1, 2, 4], table)
    assert [client for stage, client, _ in table.refusals if stage == "unmask"] == [0, 2, 4]


def test_a_round_that_was_unmasked_is_not_unmasked_with_another_vector_not_even_changed_back() -> (
    None
):
    table = interrupted()
    before = table.vectors[1]
    for name, vector in (("changed", before + 1), ("back", before)):
        table.vectors = {**table.vectors, 1: vector}
        with pytest.raises(TooFewError, match="after stage unmask"):
            masked_sum(FIVE, name)(about(), range(5), table)
    told = [refusal for refusal in table.refusals if refusal[1] == 0]
    assert [stage for stage, _, _ in told] == ["unmask", "unmask"]
    assert "only for the same survivors and vectors" in told[0][2]


def test_a_server_that_withholds_who_changed_its_vector_gets_no_second_sum() -> None:
    """It starts client 1 from another model, and shows the others all agreements but that one."""
    table = interrupted()
    table.vectors = {**table.vectors, 1: table.vectors[1] + 1}

    def withhold(stage: str, client: int, message: bytes) -> bytes:
        if stage != "unmask":
            return message
        letter = unseal(message, FIVE, stage, AGGREGATOR)
        shown = [part for part in letter.parts if unseal(part, FIVE, "agree", None).sender != 1]
        return seal(replace(letter, parts=shown), FIVE, SERVER)

    table.change = withhold
    with pytest.raises(TooFewError, match="after stage unmask"):
        masked_sum(FIVE, "later")(about(), range(5), table)
    assert [client for stage, client, _ in table.refusals if stage == "unmask"] == [0, 2, 4]


def test_a_client_that_trains_to_other_bits_is_no_hindrance_before_a_sum_is_unmasked() -> None:
    table = sit_down()
    table.silent = {("masked", 1), ("masked", 3)}
    with pytest.raises(TooFewError):
        total_of(table)
    again = Table(table.parties, {client: row * 2 for client, row in table.vectors.items()})
    total = masked_sum(FIVE, "later")(about(), range(5), again)
    assert total.values.tobytes() == ring_sum(again, tuple(range(5))).tobytes()


def test_fewer_than_three_clients_are_never_summed() -> None:
    with pytest.raises(PrivacyError, match="needs 3 clients or more, not 2"):
        make_roster(2)
    with pytest.raises(TooFewError, match=r"2 clients are left .* and 3 are needed"):
        masked_sum(FIVE)(about(), [0, 1], sit_down())
    table = sit_down(3)
    table.silent = {("keys", 1)}
    with pytest.raises(TooFewError, match="2 clients are left"):
        total_of(table, 3)


def test_a_least_cohort_above_three_is_kept() -> None:
    roster = make_roster(5, least=5)
    parties = {client: masked_party(client, roster) for client in range(5)}
    table = Table(parties, sit_down().vectors, silent={("masked", 2)})
    with pytest.raises(TooFewError, match="4 clients are left after stage masked"):
        masked_sum(roster)(about(), range(5), table)


def test_a_part_of_the_roster_can_be_summed() -> None:
    table = sit_down(10)
    total = masked_sum(make_roster(10))(about(), [7, 2, 5], table)
    assert total.clients == (2, 5, 7)
    assert total.values.tobytes() == ring_sum(table, (2, 5, 7)).tobytes()


def test_a_client_that_is_not_in_the_roster_is_not_asked() -> None:
    with pytest.raises(PrivacyError, match="client 5 is not in the roster"):
        masked_sum(FIVE)(about(), range(6), sit_down())


def test_an_answer_that_cannot_be_used_is_as_good_as_none() -> None:
    table = sit_down()
    exchange = table.exchange

    def spoil(stage, messages):  # type: ignore[no-untyped-def]
        for client, answer in exchange(stage, messages):
            yield client, answer[:-1] if (stage, client) == ("masked", 2) else answer
            yield client, b"and once more"
            yield 99, answer

    table.exchange = spoil  # type: ignore[method-assign]
    total = total_of(table)
    assert total.clients == (0, 1, 3, 4)
    assert total.absences[0].reason.startswith("its answer in stage masked was refused: a letter")
    assert total.values.tobytes() == ring_sum(table, total.clients).tobytes()


def test_a_false_share_stops_the_sum_instead_of_spoiling_it() -> None:
    table = sit_down()
    exchange = table.exchange

    def lie(stage, messages):  # type: ignore[no-untyped-def]
        for client, answer in exchange(stage, messages):
            if (stage, client) == ("unmask", 0):
                letter = unseal(answer, FIVE, "unmask", 0)
                seeds = bytearray(letter.parts[0])
                seeds[20] ^= 1
                false = Letter(letter.occasion, "unmask", 0, {}, (bytes(seeds), letter.parts[1]))
                yield client, seal(false, FIVE, identity_of(0))
            else:
                yield client, answer

    table.exchange = lie  # type: ignore[method-assign]
    with pytest.raises(PrivacyError, match=r"there is no sum|do not belong together"):
        total_of(table)


@pytest.mark.parametrize(
    "facts", [{"survivors": [0, 1, 2, 3], "same": True}, {"survivors": [0, 1, 2, 3, 4]}]
)
def test_a_client_that_agrees_to_something_else_does_not_stop_the_others(
    facts: dict[str, object],
) -> None:
    table = sit_down()
    exchange = table.exchange

    def differ(stage, messages):  # type: ignore[no-untyped-def]
        for client, answer in exchange(stage, messages):
            if (stage, client) == ("agree", 0):
                occasion = unseal(answer, FIVE, stage, client).occasion
                yield client, seal(Letter(occasion, stage, 0, facts), FIVE, identity_of(0))
            else:
                yield client, answer

    table.exchange = differ  # type: ignore[method-assign]
    total = total_of(table)
    assert total.values.tobytes() == ring_sum(table, tuple(range(5))).tobytes()
    assert [client for stage, client, _, _ in table.seen if stage == "unmask"] == [1, 2, 3, 4]


def test_the_server_must_be_the_one_in_the_roster() -> None:
    with pytest.raises(PrivacyError, match="knows the aggregator by another key"):
        MaskedSum(FIVE, Identity(bytes(32)))
    assert MaskedSum(FIVE, SERVER).roster is FIVE


LENGTH = 2**14


def masked_vector(value: float, name: str = "uniform") -> np.ndarray:
    """Return client 2's masked vector, all of whose numbers were the same before."""
    parties = {client: masked_party(client, FIVE, name) for client in range(5)}
    table = Table(parties, {client: np.full(LENGTH, value) for client in range(5)})
    masked_sum(FIVE)(about(LENGTH), range(5), table)
    (sent,) = [
        answer for stage, client, _, answer in table.seen if (stage, client) == ("masked", 2)
    ]
    return np.frombuffer(unseal(sent, FIVE, "masked", 2).parts[0], "<u8")


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
    assert Occasion.draw("run", 1, 1, os.urandom) != Occasion.draw("run", 1, 1, os.urandom)
