"""Differential privacy: the accountant against another one, the noise of a sum, what is refused."""

import json

import numpy as np
import pytest
from scipy import stats

from fedbb.errors import PrivacyError, RecipeError
from fedbb.methods import build_method
from fedbb.recipes.check import check_recipe
from fedbb.recipes.privacy import agreement_of, least_cohort
from fedbb.records import ClientInfo, ClientUpdate
from fedbb.secagg.cbr import SCALARS, Agreement, Bounds, Contributor, Sums, terms_of
from fedbb.secagg.dp import (
    NoiseTerms,
    add_noise,
    clip_change,
    epsilon,
    gaussian_rdp,
    most_rounds,
    sampled_gaussian_rdp,
)
from fedbb.secagg.primitives.noise import gaussian_noise
from fedbb.state import snapshot
from helpers.commands import fedbb
from helpers.secagg_grid import private_recipe
from helpers.small_run import finish
from helpers.toy import toy_network

# Made with dp-accounting 0.6.0, RdpAccountant with the same orders: noise, rounds, δ, rate, ε.
EPSILONS = [
    (1.0, 1, 1e-5, 1.0, 4.728507067217623),
    (1.0, 20, 1e-5, 1.0, 30.12663110385034),
    (2.0, 100, 1e-6, 1.0, 37.429216196844386),
    (0.7, 5, 1e-3, 1.0, 15.672947580499535),
    (1.0, 20, 1e-5, 0.1, 4.261313768033276),
    (0.8, 100, 1e-5, 0.01, 2.313726576019465),
    (4.0, 1000, 1e-6, 0.5, 28.424225992990703),
    (1.2, 50, 1e-5, 0.25, 10.397324732105773),
]
DIVERGENCES = [
    (0.1, 1.0, 2, 0.017036863236176605),
    (0.01, 0.8, 16, 7.587818475275968),
    (0.5, 4.0, 64, 1.3162855955023078),
]
DP = {"clip": 0.5, "noise": 0.8, "delta": 1e-5}


@pytest.mark.parametrize(("noise", "rounds", "delta", "rate", "expected"), EPSILONS)
def test_epsilon_is_that_of_another_accountant(noise, rounds, delta, rate, expected):
    assert epsilon(noise, rounds, delta, rate) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(("rate", "noise", "order", "expected"), DIVERGENCES)
def test_divergences_of_sampled_noise_are_those_of_another_accountant(rate, noise, order, expected):
    assert sampled_gaussian_rdp(rate, noise, order) == pytest.approx(expected, rel=1e-12)


def test_laws_of_the_accountant():
    assert sampled_gaussian_rdp(1.0, 1.3, 5) == gaussian_rdp(1.3, 5)
    assert sampled_gaussian_rdp(1 - 1e-12, 1.3, 5) == pytest.approx(gaussian_rdp(1.3, 5), rel=1e-6)
    assert epsilon(1.0, 0, 1e-5) == 0.0
    assert epsilon(1.0, 3, 1e-5) < epsilon(1.0, 4, 1e-5) < epsilon(0.9, 4, 1e-5)
    assert epsilon(1.0, 4, 1e-5, 0.3) < epsilon(1.0, 4, 1e-5, 0.6) < epsilon(1.0, 4, 1e-5)
    # The divergence of two Gaussians one apart, integrated.
    order, noise = 3, 1.5
    grid = np.linspace(-20, 20, 400_001)
    one, two = stats.norm.pdf(grid, 1, noise), stats.norm.pdf(grid, 0, noise)
    mixed = 0.2 * one + 0.8 * two
    moment = np.trapezoid(mixed**order * two ** (1 - order), grid)
    assert sampled_gaussian_rdp(0.2, noise, order) == pytest.approx(np.log(moment) / 2, rel=1e-8)


def test_the_rounds_of_the_busiest_client_count_and_repeated_ones_once():
    assert most_rounds([]) == 0
    assert most_rounds([(1, (0, 1, 2)), (1, (0, 1, 2)), (2, (1, 2)), (3, (2, 4))]) == 3


def test_noise_is_gaussian_and_the_secret_s_own():
    noise = gaussian_noise(bytes(32), 1, 40_001, 2.0)
    assert stats.kstest(noise / 2.0, "norm").pvalue > 0.01
    assert np.array_equal(noise[:7], gaussian_noise(bytes(32), 1, 40_001, 2.0)[:7])
    for other in (
        gaussian_noise(bytes(32), 2, 40_001, 2.0),
        gaussian_noise(b"1" * 32, 1, 40_001, 2),
    ):
        assert abs(np.corrcoef(noise, other)[0, 1]) < 0.03
    with pytest.raises(PrivacyError, match="no secret"):
        gaussian_noise(b"", 1, 3, 1.0)


def test_a_change_is_clipped_and_rounded_within_the_sensitivity():
    change = np.random.default_rng(0).normal(size=1000)
    clipped = clip_change(change, 0.3)
    assert np.linalg.norm(clipped) == pytest.approx(0.3)
    assert np.array_equal(clip_change(clipped / 2, 0.3), clipped / 2)
    rounded = add_noise(clipped * 10, np.zeros(1000), 0.3)
    assert 0.2999 < np.linalg.norm(rounded) <= 0.3
    assert np.array_equal(np.ldexp(rounded, 40), np.rint(np.ldexp(rounded, 40)))


def vectors(clients, terms, change):
    """Return what clients of equal size add, each of whose changes is this large everywhere."""
    method = build_method("fedavg", {})
    agreement = Agreement(
        terms_of(method.weighting, clients), method.merge, Bounds(0.4), noise=terms
    )
    state = snapshot(toy_network())
    trained = type(state)({k: t + change for k, t in state.params.items()}, state.buffers)
    sums = Sums(10 * clients, 0.0, tuple(range(clients)))
    for client in range(clients):
        own = Contributor(ClientInfo(client, 10), agreement)
        update = ClientUpdate(client, trained, 1, 1.0, 0.0) if client else None
        yield own.vector(
            state, update, sums, draw_noise=lambda *asked, k=client: noise_of(k, *asked)
        )


def noise_of(client, length, deviation):
    return gaussian_noise(bytes([client]) * 32, 1, length, deviation)


def test_the_sum_has_the_stated_noise_when_only_the_least_cohort_is_left():
    terms = NoiseTerms(clip=0.5, sensitivity=0.2, multiplier=3.0, least=4)
    added = list(vectors(4, terms, 0.0))
    total = np.sum(added, axis=0)
    assert total[:-SCALARS].std() == pytest.approx(3.0 * 0.2, rel=0.1)
    # Also a client without an update adds noise; weights and counts stay exact.
    assert added[0][:-SCALARS].std() == pytest.approx(0.3, rel=0.1)
    assert total[-SCALARS:].tolist() == [0.75, 0.75, 4.0]


def test_each_contribution_is_within_the_sensitivity():
    terms = NoiseTerms(clip=0.5, sensitivity=0.2, multiplier=1e-9, least=4)
    norms = [np.linalg.norm(vector[:-SCALARS]) for vector in vectors(4, terms, 1.0)]
    assert norms[0] < 1e-6
    assert norms[1:] == pytest.approx([0.25 * 0.5] * 3, rel=1e-6)
    huge = [np.linalg.norm(vector[:-SCALARS]) for vector in vectors(2, terms, 1.0)]
    assert huge[1] == pytest.approx(0.2, rel=1e-6)


def with_dp(folder, privacy="masked", **changes):
    defense = {"max_weight": 0.5, **changes.pop("defense", {})}
    return private_recipe(
        folder, privacy=privacy, dp={**DP, **changes.pop("dp", {})}, defense=defense, **changes
    )


def test_a_recipe_without_dp_is_written_as_before(tmp_path):
    assert "dp" not in json.loads(private_recipe(tmp_path).model_dump_json())
    assert json.loads(with_dp(tmp_path).model_dump_json())["dp"] == DP


def test_terms_of_a_recipe(tmp_path):
    recipe = with_dp(tmp_path)
    terms = agreement_of(recipe, check_recipe(recipe), 3).noise
    assert terms == NoiseTerms(0.5, 0.25, 0.8, least_cohort(recipe, 3), 1e-5, 1.0)
    assert terms.deviation == pytest.approx(0.8 * 0.25 / np.sqrt(3))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"privacy": "none"}, 'dp needs privacy = "masked" or "bfv"'),
        ({"method": {"name": "fednova"}}, "dp is not possible with FedNova"),
        ({"dp": {"noise": 0.0}}, "noise"),
        ({"dp": {"clip": -1.0}}, "clip"),
        ({"dp": {"delta": 1.0}}, "delta"),
        ({"dp": {"mu": 1.0}}, "mu"),
    ],
)
def test_where_dp_cannot_hold_it_is_refused(changes, reason, tmp_path):
    with pytest.raises((RecipeError, ValueError), match=reason):
        check_recipe(with_dp(tmp_path, **changes))


def test_a_private_run_reports_epsilon_and_repeats_its_noise(tmp_path, monkeypatch):
    recipe = with_dp(tmp_path)
    without = private_recipe(tmp_path, defense={"max_weight": 0.5})
    for name, given in (("one", recipe), ("two", recipe), ("plain", without)):
        finish(given, tmp_path / name)
    audits = [
        json.loads((tmp_path / name / "audit.json").read_text("utf-8"))
        for name in ("one", "two", "plain")
    ]
    digests = [audit["rounds"][-1]["sha256"] for audit in audits]
    assert digests[0] == digests[1] != digests[2]
    entry = audits[0]["dp"]
    assert "dp" not in audits[2]
    assert (entry["rounds"], entry["simulated"]) == (2, True)
    assert entry["epsilon"] == pytest.approx(epsilon(0.8, 2, 1e-5))
    shown = " ".join(fedbb("show", tmp_path / "one", monkeypatch=monkeypatch).out.split())
    assert f"ε = {entry['epsilon']:.3g} at δ = 1e-05" in shown
    assert "a simulation, whose noise follows from the seed and protects nobody" in shown
    card = fedbb("card", tmp_path / "one", monkeypatch=monkeypatch).out
    assert "Privacy loss: differential privacy of model changes" in card.replace("*", "")
