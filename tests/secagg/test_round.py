from dataclasses import replace

import numpy as np
import pytest
import torch

from fedbb.errors import (
    DivergedError,
    PrivacyError,
    QuorumError,
    RecipeError,
    RefusedError,
    TooFewError,
)
from fedbb.methods import METHODS, Method, build_method, fedavg
from fedbb.recipes.privacy import check_parts
from fedbb.records import ClientFailure, ClientInfo, ClientReport, ModelState, Task
from fedbb.rounds.round import RoundPolicy
from fedbb.secagg.cbr import Bounds, Contributor, commitment
from fedbb.secagg.masked.client import STAGES
from fedbb.secagg.protocol.messages import AttemptId, SignedMessage, sign_message, verify_message
from fedbb.secagg.protocol.roster import AGGREGATOR
from fedbb.secagg.round import COMMIT, CONFIRM, StatisticsRound
from fedbb.secagg.simulated import SimulatedTransport
from fedbb.state import digest
from fedbb.training.config import LocalConfig
from helpers.cover import cover, few
from helpers.secagg_clients import SERVER, identity_of, make_roster, masked_sum
from helpers.secagg_federation import CLIENTS, PLAN, Federation, everyone
from helpers.toy import equal_states

STEP = 2.0**-41
"""Half a unit of fixed point: the most by which one client's number is rounded."""


def is_private(name):
    """Tell whether sums over clients suffice for a method."""
    try:
        check_parts("masked", build_method(name, {}))
    except RecipeError:
        return False
    return True


COMBINED = ("fednova+fedbb", "moon+fedbb", "fedavg+lda-head", "fedbb+ridge-head", "moon+means-head")
NAMES = [name for name in (*METHODS, *COMBINED) if is_private(name)]
SUITED = [(name, task) for name in NAMES for task in Task if build_method(name, {}).supports(task)]


def test_methods_that_need_more_than_sums_are_refused():
    of_single_clients = {"climb", "fedfusion", "fedvc", "pfedla", "rhfl", "ripfl"}
    assert {*METHODS} - {*NAMES} == of_single_clients


def close(ours, plain, bound, units=2):
    """Compare float entries: within a bound, and the rounding of the models' own type."""
    for one, two in ((ours.params, plain.params), (ours.buffers, plain.buffers)):
        assert one.keys() == two.keys()
        for name, tensor in two.items():
            if tensor.is_floating_point():
                gap = (one[name].double() - tensor.double()).abs()
                assert (
                    gap <= bound + units * torch.finfo(tensor.dtype).eps * tensor.abs()
                ).all(), name


@pytest.mark.parametrize(
    ("name", "task", "chosen"), few(cover(SUITED, [[0, 1, 2, 3, 4], [0, 2, 3]]), 14)
)
def test_a_private_round_is_the_open_one_up_to_rounding(tmp_path, name, task, chosen):
    federation = Federation(build_method(name, {}), task, folder=tmp_path)
    secure_round, plain, state = (
        federation.secure_round(),
        federation.plain_round(),
        federation.first,
    )
    before = dict(federation.engine.state_rounds)
    server = secure_round.server_steps.begin(state)
    ours = secure_round(1, state, np.array(chosen), server)
    federation.engine.state_rounds.clear()
    federation.engine.state_rounds.update(before)
    theirs = plain(1, state, np.array(chosen), server)
    seen = federation.recorded[0]
    # A sum is off by a step for each client, and then divided by ΣW and spread over the steps.
    bound = len(chosen) * STEP * seen.steps / seen.weight + 1e-9
    # An optimizer of the server amplifies the last bit of the merged model by up to 0.1·η/τ = 10.
    close(ours.state, theirs.state, bound, 32 if server else 2)
    close(ModelState(ours.server, {}), ModelState(theirs.server, {}), 5e-7)
    assert ours.reports == tuple(ClientReport(client) for client in chosen)
    assert seen.weight == pytest.approx(federation.plain_round()._weights[chosen].sum())
    for key, tensor in state.buffers.items():
        if not tensor.is_floating_point():
            assert torch.equal(ours.state.buffers[key], tensor)


def test_the_sum_itself_is_within_half_a_unit_for_each_client(monkeypatch):
    federation = Federation(build_method("fedbb", {}))
    secure_round, parts, totals = federation.secure_round(), [], []
    aggregation, honest = secure_round.aggregation, Contributor.vector

    def spy(request, clients, transport):
        totals.append(aggregation(request, clients, transport))
        return totals[-1]

    def part(self, *terms):
        parts.append(honest(self, *terms))
        return parts[-1].copy()

    monkeypatch.setattr(Contributor, "vector", part)
    replace(secure_round, aggregation=spy)(1, federation.first, everyone())
    exact = np.sum(np.array(parts, dtype=np.longdouble), axis=0)
    assert len(parts) == CLIENTS
    assert np.abs(totals[0].values - exact).max() <= CLIENTS * STEP


def test_fresh_keys_give_the_same_bits():
    states = []
    for _ in range(2):
        federation = Federation(build_method("fedbb", {}))
        states.append(federation.secure_round()(1, federation.first, everyone()).state)
    assert equal_states(*states)


@pytest.mark.parametrize(("stage", "client"), cover(STAGES, range(CLIENTS)))
def test_whoever_goes_away_in_a_stage_is_in_the_sum_or_not_and_the_sum_is_right(stage, client):
    federation = Federation(build_method("fedbb", {}), plan=LocalConfig(batch_size=40, lr=0.1))
    secure_round = federation.secure_round()
    federation.lost += [(stage, client)]
    joined = secure_round(1, federation.first, everyone())
    counted = stage in ("agree", "unmask")
    there = [k for k in range(CLIENTS) if counted or k != client]
    assert [report.client for report in joined.reports] == there
    assert [gone.client for gone in joined.failures] == ([] if counted else [client])
    assert federation.recorded[0].clients == tuple(there)
    assert federation.recorded[0].attempts == (2 if stage in ("keys", "shares") else 1)
    theirs = federation.plain_round()(1, federation.first, np.array(there))
    close(joined.state, theirs.state, 1e-9)


@pytest.mark.parametrize("stage", STAGES)
def test_when_too_many_go_away_the_run_stops_and_nothing_is_seen(stage):
    federation = Federation(build_method("fedbb", {}), policy=RoundPolicy(attempts=2))
    secure_round = federation.secure_round()
    away = [(stage, client) for client in (0, 2, 4)]
    federation.lost += away * 2
    with pytest.raises(QuorumError, match=r"round 1: .*after 2 attempts; finished rounds"):
        secure_round(1, federation.first, everyone())
    assert federation.recorded == []


@pytest.mark.parametrize("stage", ["masked", "agree"])
def test_a_repeated_attempt_gives_the_bits_of_an_undisturbed_one(tmp_path, stage):
    method = build_method("moon", {})
    states = []
    for lost in ([], [(stage, client) for client in (0, 2, 4)]):
        federation = Federation(method, folder=tmp_path / str(len(lost)))
        (tmp_path / str(len(lost))).mkdir()
        secure_round = federation.secure_round()
        first = secure_round(1, federation.first, everyone()).state
        federation.lost += lost
        states.append(secure_round(2, first, everyone()).state)
        assert federation.lost == []
    assert equal_states(*states)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_a_client_whose_numbers_cannot_be_summed_refuses_before_it_masks_them(value, caplog):
    def spoil(update):
        if update.client != 1:
            return update
        params = {name: torch.full_like(t, value) for name, t in update.state.params.items()}
        return replace(update, state=ModelState(params, update.state.buffers))

    federation = Federation(build_method("fedbb", {}), spoil=spoil)
    joined = federation.secure_round()(1, federation.first, everyone())
    assert joined.failures == (ClientFailure(1, "gave no answer in stage masked"),)
    (line,) = caplog.messages
    assert line.startswith("client 1 refuses stage masked: a number to be summed is")
    assert str(value) not in line
    theirs = federation.plain_round()(1, federation.first, np.array([0, 2, 3, 4]))
    close(joined.state, theirs.state, 1e-9)


def test_clients_with_nothing_to_train_on_add_nothing(tmp_path):
    method = build_method("cbr", {"gamma": 0.5})
    infos = Federation(method).infos
    infos = [replace(info, samples=0) if info.client == 2 else info for info in infos]
    federation = Federation(method, infos=infos)
    joined = federation.secure_round()(1, federation.first, everyone())
    assert [report.client for report in joined.reports] == [0, 1, 2, 3, 4]
    theirs = federation.plain_round()(1, federation.first, everyone())
    assert [gone.client for gone in theirs.failures] == [2]
    close(joined.state, theirs.state, 1e-9)


def test_if_no_client_that_takes_part_weighs_anything_the_model_stays():
    infos = [ClientInfo(client, 0 if client < 3 else 10) for client in range(CLIENTS)]
    federation = Federation(fedavg(), infos=infos)
    joined = federation.secure_round()(1, federation.first, np.array([0, 1, 2]))
    assert joined.state is federation.first
    assert federation.recorded[0].weight == 0


def test_clients_are_called_by_their_numbers_and_not_by_size():
    federation = Federation(fedavg())
    asked = []
    train = federation.engine.train

    class Watching:
        state_rounds = federation.engine.state_rounds
        method = federation.engine.method

        def train(self, jobs):
            asked.extend(job.client for job in jobs)
            return train(jobs)

    federation.engine = Watching()
    federation.secure_round()(1, federation.first, np.array([0, 1, 3, 4]))
    assert asked == [0, 1, 3, 4]


def test_two_clients_are_refused_since_each_would_learn_the_others_change():
    federation = Federation(fedavg())
    with pytest.raises(PrivacyError, match=r"round 3: 2 clients can take part.*needs 3 here"):
        federation.secure_round()(3, federation.first, np.array([1, 4]))


def test_a_quorum_above_the_protocols_is_kept():
    federation = Federation(fedavg(), policy=RoundPolicy(quorum=1.0, attempts=1), least=5)
    secure_round = federation.secure_round()
    federation.lost += [("masked", 3)]
    with pytest.raises(QuorumError, match="5 are needed"):
        secure_round(1, federation.first, everyone())


def test_a_client_that_missed_the_statistics_stays_out_of_the_rounds():
    federation = Federation(build_method("fedbb", {}))
    secure_round = federation.secure_round(lost=[("commit", 4)])
    joined = secure_round(1, federation.first, everyone())
    assert [report.client for report in joined.reports] == [0, 1, 2, 3]
    assert joined.failures == (ClientFailure(4, "took no part in the statistics"),)


def test_who_claims_more_weight_than_there_is_stops_the_run():
    federation = Federation(fedavg())
    secure_round = federation.secure_round()
    client = federation.clients[2]
    info = replace(client.contributor.info, samples=10**6)
    client.contributor = replace(client.contributor, info=info)
    with pytest.raises(PrivacyError, match="together, where all clients have 1"):
        secure_round(1, federation.first, everyone())
    assert federation.recorded == []


@pytest.mark.parametrize("gamma", [0.5, 1.0])
@pytest.mark.parametrize("most", [0.2, 0.35])
def test_a_liar_with_an_inverse_dispersion_of_a_billion_counts_no_more_than_the_cap(gamma, most):
    method = build_method("cbr", {"gamma": gamma})
    honest = Federation(method).infos
    infos = [replace(info, dispersion=1e-9) if info.client == 0 else info for info in honest]

    def jump(update):
        # The liar moves every parameter by one, the others stay where they are.
        step = 1.0 if update.client == 0 else 0.0
        params = {name: tensor + step for name, tensor in first.params.items()}
        return replace(update, state=ModelState(params, first.buffers))

    federation = Federation(method, infos=infos, spoil=jump, bounds=Bounds(max_weight=most))
    first = federation.first
    moved = federation.secure_round()(1, first, everyone()).state
    shift = max((moved.params[n] - first.params[n]).max().item() for n in first.params)
    assert shift == pytest.approx(most, abs=1e-6)


def test_a_bound_on_the_norm_limits_the_shift():
    method = build_method("fedbb", {})
    federation = Federation(method, bounds=Bounds(max_weight=0.25, max_norm=0.01))
    federation.secure_round()(1, federation.first, everyone())
    assert 0 < federation.recorded[0].change <= 0.01 * 1.0001


def test_a_training_that_diverges_stops_the_run_without_a_clients_figures():
    federation = Federation(fedavg(), plan=replace(PLAN, lr=1e30))
    with pytest.raises(
        DivergedError, match="round 1: a client's training produced a number"
    ) as caught:
        federation.secure_round()(1, federation.first, everyone())
    assert "step" not in str(caught.value)
    assert "client 0" not in str(caught.value)


def test_a_merge_that_needs_single_models_is_refused_when_it_is_asked_for():
    def favorite(current, updates, weights):
        return next(iter(updates)).state

    with pytest.raises(PrivacyError, match="the merge favorite needs each client's model"):
        Federation(Method("favorite", merge=favorite))


def test_what_the_server_records_is_what_it_saw():
    federation = Federation(build_method("fednova", {}))
    joined = federation.secure_round()(1, federation.first, everyone())
    (seen,) = federation.recorded
    assert seen.as_json() == {
        "round": 1,
        "clients": [0, 1, 2, 3, 4],
        "absent": [],
        "attempts": 1,
        "weight": pytest.approx(1.0, abs=CLIENTS * STEP),
        "steps": seen.steps,
        "change": seen.change,
        "sha256": digest(joined.state),
    }
    assert seen.steps > 1


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
    with pytest.raises(TooFewError, match="stage confirm"):
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

    statistics_round = StatisticsRound("run", federation.roster, SERVER, federation.agreement)
    transport = Forging(federation.clients)
    statistics = statistics_round(masked_sum(federation.roster), range(CLIENTS), transport)
    assert [gone.client for gone in statistics.failures] == [0]
    assert "refused" in statistics.failures[0].reason
