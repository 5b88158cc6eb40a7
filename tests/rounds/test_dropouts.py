"""The paper's setting of many clients, of which some do not reply in any round."""

import numpy as np

from fedbb.methods import fedbb
from fedbb.records import ClientFailure
from fedbb.rng import stream
from fedbb.rounds.loop import Schedule, Start, choose, run_rounds
from fedbb.rounds.round import PlainRound, RoundReplies
from fedbb.simulation.inline import Inline
from fedbb.state import snapshot
from fedbb.training.config import LocalConfig
from helpers.toy import toy_dataset, toy_network, toy_shares

CLIENTS, PARTICIPATION, ROUNDS, DROPOUT = 100, 0.05, 50, 0.1


def test_fifty_rounds_of_a_hundred_clients_survive_dropouts_of_a_tenth(tally):
    dataset = toy_dataset(train=5050)  # client k holds k + 1 samples
    model, method = toy_network(), fedbb()
    engine = Inline(model, toy_shares(dataset, CLIENTS), method, LocalConfig(batch_size=64, lr=0.1))
    infos = engine.client_infos()
    weights = method.weighting(infos)
    dropped, merged = [], {}

    def train(jobs, attempt):
        draws = stream(0, "dropout test", jobs[0].round, attempt).random(len(jobs))
        there = [job for job, draw in zip(jobs, draws, strict=True) if draw >= DROPOUT]
        away = tuple(ClientFailure(job.client, "away") for job in jobs if job not in there)
        dropped.extend(away)
        updates = list(engine.train(there))
        merged[jobs[0].round] = updates  # of the last attempt
        return RoundReplies(tuple(job.client for job in there), iter(updates), away)

    rounds = list(
        run_rounds(
            PlainRound(train, method, infos, seed=0),
            Start(snapshot(model), seed=0),
            Schedule(number=ROUNDS, participation=PARTICIPATION),
            lambda state: {},
        )
    )
    tally.rounds([done.number for done in rounds], ROUNDS)
    assert 10 < len(dropped) < 50  # 25 are expected of 250
    right = [is_the_survivors_mean(done, weights, merged[done.number]) for done in rounds]
    tally.results(right, True)


def is_the_survivors_mean(done, weights, updates):
    """Tell whether weights and model of a round are those of its survivors, worked out here."""
    chosen = set(choose(CLIENTS, PARTICIPATION, done.number, seed=0).tolist())
    survivors = [update.client for update in updates]
    shares = weights[survivors] / weights[survivors].sum()
    told = {report.client: report.weight for report in done.reports}
    failed = {failure.client for failure in done.result.failures}
    if (set(told), failed) != (set(survivors), chosen - set(survivors)):
        return False
    means = {
        name: np.tensordot(
            shares, np.stack([update.state.params[name].double() for update in updates]), axes=1
        )
        for name in done.state.params
    }
    return np.allclose([told[client] for client in survivors], shares, rtol=1e-12) and all(
        np.allclose(parameter.double(), means[name], rtol=1e-5, atol=1e-7)
        for name, parameter in done.state.params.items()
    )
