"""The secure sum of the scores on the clients' own test data: exact, bound, and once a round."""

import math

import numpy as np
import pytest

from fedbb.errors import PrivacyError
from fedbb.evaluation.sites import (
    SUMMED,
    SiteScores,
    site_vector,
    spread_over_sites,
    spreads_from_sums,
)
from fedbb.methods import build_method
from fedbb.rounds.round import RoundPolicy
from fedbb.secagg.protocol.secure_aggregation import SumResult
from fedbb.secagg.round import read_site_scores, site_scores_request, sum_site_scores
from fedbb.secagg.simulated import SimulatedTransport, SiteVectors
from fedbb.secagg.view import view_digest
from helpers.secagg_clients import masked_sum
from helpers.secagg_federation import CLIENTS, Federation, LossyTransport


def scores_of(rng, client):
    macro = dict(zip(SUMMED, rng.uniform(0, 1, len(SUMMED)).tolist(), strict=True))
    return SiteScores(client, 10 + client, 3, macro | ({"auroc": math.nan} if client == 1 else {}))


def test_mean_and_deviation_follow_from_the_sums_as_from_the_sites():
    rng = np.random.default_rng(0)
    sites = [scores_of(rng, client) for client in range(4)]
    total = np.sum([site_vector(site) for site in [*sites, None]], axis=0)
    assert total[:2].tolist() == [4, 46]
    for spread in spreads_from_sums(total):
        known = spread_over_sites(sites, spread.metric)
        assert (spread.sites, spread.worst, spread.worst_tenth) == (known.sites, None, None)
        assert spread.mean == pytest.approx(known.mean, abs=1e-11)
        assert spread.std == pytest.approx(known.std, abs=1e-5)


def sum_of(federation, vectors, model, told=None, lost=()):
    transport = SimulatedTransport(federation.clients, site_scores=SiteVectors(model, vectors))
    if told is not None:
        transport.clients[2].contributor = told
    view = view_digest(federation.agreement, federation.clients[0].secrets.sums, model)
    return sum_site_scores(
        masked_sum(federation.roster, model),
        site_scores_request("run", 2, view),
        range(CLIENTS),
        LossyTransport(transport, list(lost)),
        RoundPolicy().attempts,
    )


def test_dropouts_are_left_out_and_a_second_model_or_group_in_a_round_is_refused(caplog):
    federation = Federation(build_method("fedavg", {}))
    federation.sum_statistics()
    rng = np.random.default_rng(1)
    vectors = {client: site_vector(scores_of(rng, client)) for client in range(CLIENTS)}
    total = sum_of(federation, vectors, "model", lost=[("masked", 3)])
    assert total.clients == (0, 1, 2, 4)
    np.testing.assert_array_equal(total.values, sum(vectors[client] for client in total.clients))
    # The sum over all and this one would tell the scores of client 3.
    assert sum_of(federation, vectors, "model") is None
    assert sum_of(federation, vectors, "other") is None
    assert "the run has no scores of sites" in caplog.text


def test_clients_with_different_models_make_noise_and_the_server_refuses_it():
    federation = Federation(build_method("fedavg", {}))
    federation.sum_statistics()
    rng = np.random.default_rng(1)
    vectors = {client: site_vector(scores_of(rng, client)) for client in range(CLIENTS)}
    honest, lie = (
        SimulatedTransport(federation.clients, site_scores=SiteVectors(model, vectors))
        for model in ("model", "other")
    )

    class Lying:
        def exchange(self, stage, messages):
            for client, message in messages.items():
                told = honest if client == 2 else lie
                yield from told.exchange(stage, {client: message})

    view = view_digest(federation.agreement, federation.clients[0].secrets.sums, "model")
    request = site_scores_request("run", 1, view)
    total = sum_site_scores(
        masked_sum(federation.roster, "scores"), request, range(CLIENTS), Lying(), 1
    )
    exact = sum(vectors.values())
    assert np.abs(total.values.astype(float) - exact).max() > 2.0**50
    with pytest.raises(PrivacyError, match="some client violates the agreement"):
        read_site_scores(total, None, 1)


def test_sums_that_no_scores_can_have_are_refused():
    vector = site_vector(scores_of(np.random.default_rng(0), 0))
    vector[3] = 2**41
    with pytest.raises(PrivacyError, match="the sum of accuracy over 1 sites is not within"):
        read_site_scores(SumResult(vector, (0,)), None, 1)
