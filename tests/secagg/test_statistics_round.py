import json
from dataclasses import replace

import numpy as np
import pytest

from fedbb.errors import PrivacyError, RefusedError, TooFewError
from fedbb.methods import build_method, fedavg
from fedbb.secagg.audit import commitment_in, confirmed_in, opening, sums_in
from fedbb.secagg.protocol.messages import Letter, Occasion, seal, unseal
from fedbb.secagg.protocol.roster import AGGREGATOR
from fedbb.secagg.simulated import StatisticsWire
from fedbb.secagg.statistics import commitment
from fedbb.secagg.statistics_round import COMMIT, TOLD, Pledging
from helpers.secagg_clients import SERVER, identity_of, make_roster, masked_sum
from helpers.secagg_federation import CLIENTS, Federation


@pytest.fixture
def federation():
    return Federation(build_method("cbr", {"gamma": 0.5}))


def told(federation, sums, clients, signer=SERVER, run="run"):
    occasion = Occasion(run, 0, 1, "00" * 16)
    facts = {"sums": sums, "clients": clients}
    return seal(Letter(occasion, TOLD, AGGREGATOR, facts), federation.roster, signer)


def fair_sums(federation):
    return [
        int(total)
        for total in np.sum([s.pledge.declared for s in federation.seats.values()], axis=0)
    ]


def test_the_sums_are_those_of_the_cards_and_every_client_confirms_them(federation):
    statistics, wire = federation.gather()
    infos = federation.infos
    assert statistics.sums.samples == sum(info.samples for info in infos)
    exact = sum(1 / max(info.dispersion, federation.terms.floor) for info in infos)
    assert statistics.sums.evenness == pytest.approx(exact, abs=CLIENTS * 2.0**-41)
    assert list(wire.confirmed.values()) == [statistics.sums] * CLIENTS
    weights = [seat.member.weight(statistics.sums) for seat in federation.seats.values()]
    assert weights == pytest.approx(build_method("cbr", {"gamma": 0.5}).weighting(infos).tolist())


def test_an_auditor_can_hold_a_client_to_its_commitment(federation):
    statistics, _ = federation.gather()
    for client, letter in statistics.commitments.items():
        pledge = federation.seats[client].pledge
        bound = commitment_in(letter, federation.roster, client)
        assert bound == commitment(pledge.nonce, pledge.declared)
        assert bound != commitment(pledge.nonce, pledge.declared + 1)


def test_every_client_signs_the_same_letter_with_the_sums(federation):
    statistics, _ = federation.gather()
    signed = {
        unseal(letter, federation.roster, TOLD, client).facts["sha256"]
        for client, letter in statistics.confirmations.items()
    }
    assert len(signed) == 1


@pytest.mark.parametrize("client", range(CLIENTS))
@pytest.mark.parametrize("stage", [COMMIT, "keys", "masked", TOLD])
def test_who_is_missing_is_named_and_left_out(federation, client, stage):
    statistics, _ = federation.gather(lost=[(stage, client)])
    assert [gone.client for gone in statistics.absences] == [client]
    assert client not in statistics.confirmations
    assert (client in statistics.sums.clients) == (stage == TOLD)


def test_without_enough_confirmations_there_are_no_statistics(federation):
    with pytest.raises(TooFewError, match="stage told"):
        federation.gather(lost=[(TOLD, client) for client in (0, 1)])


def test_a_client_that_declares_too_much_behind_our_backs_is_noticed(federation):
    seat = federation.seats[3]
    lie = np.array([10, 10**5 * 2**federation.terms.bits, 1])
    federation.seats[3] = replace(seat, pledge=replace(seat.pledge, declared=lie))
    with pytest.raises(PrivacyError, match="some client declares more than it may"):
        federation.gather()


def test_by_samples_nothing_is_said_of_evenness():
    statistics, _ = Federation(fedavg()).gather()
    assert statistics.sums.evenness == 0


def test_a_client_confirms_fair_sums_and_refuses_others(federation):
    pledge, terms = federation.seats[1].pledge, federation.terms
    fair, everyone = fair_sums(federation), list(range(CLIENTS))
    sums, _ = pledge.confirm(told(federation, fair, everyone), terms)
    assert sums.samples == fair[0]
    refused = [
        (told(federation, fair, everyone, signer=identity_of(2)), "false signature"),
        (told(federation, fair, everyone, run="other"), "did not join"),
        (told(federation, fair, [0, 2, 3, 4]), "without this one"),
        (told(federation, fair, [0, 1]), "too few"),
        (told(federation, [fair[0], fair[1], 4], everyone), "of 4 clients where 5"),
        (told(federation, [fair[0], 2**61, 5], everyone), "more than it may"),
        (told(federation, fair[:2], everyone), "3 whole numbers"),
        (told(federation, [-1, 0, 5], everyone), "whole number"),
        (told(federation, fair, everyone)[:-1], "shorter than its parts|cut short"),
        (b"", "no letter"),
    ]
    for message, reason in refused:
        with pytest.raises(PrivacyError, match=reason):
            pledge.confirm(message, terms)


def test_a_call_of_another_run_or_roster_gets_no_commitment(federation):
    pledge = federation.seats[1].pledge
    letter = Letter(Occasion("other", 0, 1, "00" * 16), COMMIT, AGGREGATOR)
    with pytest.raises(RefusedError, match="did not join"):
        pledge.commit(seal(letter, federation.roster, SERVER))
    letter = Letter(Occasion("run", 0, 1, "00" * 16), COMMIT, AGGREGATOR)
    with pytest.raises(RefusedError, match="another roster"):
        pledge.commit(seal(letter, make_roster(CLIENTS, max_weight=0.5), SERVER))


def test_a_forged_commitment_is_as_none(federation):
    class Forger(StatisticsWire):
        def _answer(self, client, stage, message):
            stranger = 2 if (stage, client) == (COMMIT, 0) else client
            return super()._answer(stranger, stage, message)

    pledging = Pledging("run", federation.roster, SERVER, federation.terms)
    statistics = pledging(masked_sum(federation.roster), range(CLIENTS), Forger(federation.seats))
    assert [gone.client for gone in statistics.absences] == [0]
    assert "refused" in statistics.absences[0].reason


def test_an_audit_opens_with_the_sums_and_gives_them_back(federation):
    statistics, _ = federation.gather(lost=[(COMMIT, 4)])
    agreement = federation.seats[0].member.agreement
    audit = json.loads(json.dumps(opening("masked", federation.roster, agreement, statistics)))
    assert audit["clients"] == CLIENTS
    assert audit["threshold"] == 4
    assert sums_in(audit) == statistics.sums
    assert confirmed_in(audit) == {0, 1, 2, 3}
    assert audit["statistics"]["absent"] == [
        {"client": 4, "reason": "gave no answer in stage commit"}
    ]
    assert audit["roster"] == federation.roster.digest
    assert {len(text) for text in audit["statistics"]["commitments"].values()} == {64}
    with pytest.raises(PrivacyError, match="tells no sums"):
        sums_in({"statistics": {}})
