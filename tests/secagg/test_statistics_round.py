from dataclasses import replace

import numpy as np
import pytest

from fedbb.errors import PrivacyError, RefusedError, TooFewError
from fedbb.methods import build_method, fedavg
from fedbb.secagg.cbr import commitment
from fedbb.secagg.protocol.messages import AttemptId, SignedMessage, sign_message, verify_message
from fedbb.secagg.protocol.roster import AGGREGATOR
from fedbb.secagg.simulated import SimulatedTransport
from fedbb.secagg.statistics_round import COMMIT, CONFIRM, StatisticsRound
from helpers.secagg_clients import SERVER, identity_of, make_roster, masked_sum
from helpers.secagg_federation import CLIENTS, Federation


@pytest.fixture
def federation():
    return Federation(build_method("cbr", {"gamma": 0.5}))


def told(federation, sums, clients, signer=SERVER, run="run"):
    attempt_id = AttemptId(run, 0, 1, "00" * 16)
    facts = {"sums": sums, "clients": clients}
    return sign_message(
        SignedMessage(attempt_id, CONFIRM, AGGREGATOR, facts), federation.roster, signer
    )


def fair_sums(federation):
    return [
        int(total)
        for total in np.sum([own.secrets.declared for own in federation.clients.values()], axis=0)
    ]


def test_the_sums_are_those_of_the_cards_and_every_client_confirms_them(federation):
    statistics = federation.sum_statistics()
    infos = federation.infos
    assert statistics.sums.samples == sum(info.samples for info in infos)
    exact = sum(1 / max(info.dispersion, federation.terms.floor) for info in infos)
    assert statistics.sums.evenness == pytest.approx(exact, abs=CLIENTS * 2.0**-41)
    clients = federation.clients.values()
    assert [own.secrets.sums for own in clients] == [statistics.sums] * CLIENTS
    weights = [own.contributor.weight(statistics.sums) for own in clients]
    assert weights == pytest.approx(build_method("cbr", {"gamma": 0.5}).weighting(infos).tolist())


def test_an_auditor_can_hold_a_client_to_its_commitment(federation):
    statistics = federation.sum_statistics()
    for client, bound in statistics.digests(federation.roster).items():
        secrets = federation.clients[client].secrets
        assert bound == commitment(secrets.nonce, secrets.declared)
        assert bound != commitment(secrets.nonce, secrets.declared + 1)


def test_every_client_signs_the_same_message_with_the_sums(federation):
    statistics = federation.sum_statistics()
    signed = {
        verify_message(message, federation.roster, CONFIRM, client).facts["sha256"]
        for client, message in statistics.confirmations.items()
    }
    assert len(signed) == 1


@pytest.mark.parametrize("client", range(CLIENTS))
@pytest.mark.parametrize("stage", [COMMIT, "keys", "masked", CONFIRM])
def test_who_is_missing_is_named_and_left_out(federation, client, stage):
    statistics = federation.sum_statistics(lost=[(stage, client)])
    assert [gone.client for gone in statistics.failures] == [client]
    assert client not in statistics.confirmations
    assert (client in statistics.sums.clients) == (stage == CONFIRM)


def test_without_enough_confirmations_there_are_no_statistics(federation):
    with pytest.raises(TooFewError, match="stage told"):
        federation.sum_statistics(lost=[(CONFIRM, client) for client in (0, 1)])


def test_a_client_that_declares_too_much_behind_our_backs_is_noticed(federation):
    client = federation.clients[3]
    lie = np.array([10, 10**5 * 2**federation.terms.bits, 1])
    client.statistics = replace(client.statistics, secrets=replace(client.secrets, declared=lie))
    with pytest.raises(PrivacyError, match="some client declares more than allowed"):
        federation.sum_statistics()


def test_by_samples_nothing_is_said_of_evenness():
    statistics = Federation(fedavg()).sum_statistics()
    assert statistics.sums.evenness == 0


def test_a_client_confirms_fair_sums_and_refuses_others(federation):
    client, terms = federation.clients[1].statistics, federation.terms
    fair, everyone = fair_sums(federation), list(range(CLIENTS))
    sums, _ = client.confirm(told(federation, fair, everyone), terms)
    assert sums.samples == fair[0]
    refused = [
        (told(federation, fair, everyone, signer=identity_of(2)), "invalid signature"),
        (told(federation, fair, everyone, run="other"), "did not join"),
        (told(federation, fair, [0, 2, 3, 4]), "without this one"),
        (told(federation, fair, [0, 1]), "too few"),
        (told(federation, [fair[0], fair[1], 4], everyone), "of 4 clients where 5"),
        (told(federation, [fair[0], 2**61, 5], everyone), "more than allowed"),
        (told(federation, fair[:2], everyone), "3 integers"),
        (told(federation, [-1, 0, 5], everyone), "integer"),
        (told(federation, fair, everyone)[:-1], "shorter than its parts|cut short"),
        (b"", "not a message"),
    ]
    for message, reason in refused:
        with pytest.raises(PrivacyError, match=reason):
            client.confirm(message, terms)


def test_a_call_of_another_run_or_roster_gets_no_commitment(federation):
    client = federation.clients[1].statistics
    message = SignedMessage(AttemptId("other", 0, 1, "00" * 16), COMMIT, AGGREGATOR)
    with pytest.raises(RefusedError, match="did not join"):
        client.commit_statistics(sign_message(message, federation.roster, SERVER))
    message = SignedMessage(AttemptId("run", 0, 1, "00" * 16), COMMIT, AGGREGATOR)
    with pytest.raises(RefusedError, match="another roster"):
        client.commit_statistics(
            sign_message(message, make_roster(CLIENTS, max_weight=0.5), SERVER)
        )


def test_a_forged_commitment_is_as_none(federation):
    class Forging(SimulatedTransport):
        def exchange(self, stage, messages):
            answers = dict(super().exchange(stage, messages))
            if stage == COMMIT:
                answers[0] = answers[2]
            yield from answers.items()

    statistics_round = StatisticsRound("run", federation.roster, SERVER, federation.terms)
    transport = Forging(federation.clients)
    statistics = statistics_round(masked_sum(federation.roster), range(CLIENTS), transport)
    assert [gone.client for gone in statistics.failures] == [0]
    assert "refused" in statistics.failures[0].reason
