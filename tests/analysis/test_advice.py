import tomllib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.analysis.advice import saturating_beta
from fedbb.analysis.inspect import inspect
from fedbb.analysis.measures import Settings, mean_weights
from fedbb.imbalance import effective_number
from fedbb.methods import build_method
from fedbb.partition.registry import Rule
from fedbb.report.inspection import write_fragment


def tailed(factor=0.1, classes=10, most=1000):
    sizes = (most * factor ** (np.arange(classes) / (classes - 1))).astype(int)
    return np.repeat(np.arange(classes), sizes)


@given(st.integers(1, 10_000_000), st.floats(0.05, 0.95))
def test_beta_saturates_the_count_as_asked(count, saturation):
    beta = saturating_beta(count, saturation)
    assert 0 <= beta < 1
    reached = float(effective_number(count, beta)) * (1 - beta)
    assert reached == pytest.approx(saturation, abs=0.02)


def test_beta_is_for_the_largest_class_of_the_client_with_the_middle_sample():
    labels = [0] * 300 + [1] * 100 + [0] * 5 + [1] * 4
    owners = [0] * 400 + [1] * 9
    found = inspect(labels, owners)
    assert found.advice.beta == saturating_beta(300, 0.5)
    assert "300 cases" in found.advice.reasons[0]


def test_a_higher_saturation_gives_a_lower_beta():
    low, high = (
        inspect(tailed(), settings=Settings(saturation=level)).advice.beta for level in (0.1, 0.9)
    )
    assert high < low


@pytest.mark.parametrize("labels", [tailed(), (tailed()[:, None] == np.arange(10)).astype(int)])
def test_mu_makes_the_mean_weight_over_all_cases_one(labels):
    found = inspect(labels, Rule("label-skew", 5, 0.3))
    advice, tally = found.advice, found.statistics
    weights = mean_weights(tally, Settings(advice.beta, advice.tau, advice.mu))
    cases = tally.samples if labels.ndim == 1 else tally.samples * 10
    assert (weights @ cases) / cases.sum() == pytest.approx(1.0, abs=0.01)


def test_gamma_is_one_for_equal_sizes_and_falls_with_their_spread():
    labels = np.tile([0, 0, 0, 1], 300)
    equal = np.repeat([0, 1, 2], 400)
    labels[:400] = 0
    assert inspect(labels, equal).advice.gamma == 1.0
    uneven = np.repeat([0, 1, 2], [1000, 100, 100])
    gamma = inspect(labels, uneven).advice.gamma
    shares = np.array([1000, 100, 100]) / 1200
    assert gamma == round(1 / (3 * (shares**2).sum()), 2)


def test_gamma_is_zero_for_one_client_and_for_clients_drawn_at_random():
    assert inspect(tailed()).advice.gamma == 0.0
    assert inspect(tailed(), Rule("even", 5)).advice.gamma == 0.0


def test_clients_of_one_class_get_a_floor():
    labels, owners = [0] * 50 + [1] * 50, [0] * 50 + [1] * 50
    advice = inspect(labels, owners).advice
    assert advice.alpha_min > 0
    assert advice.mu == 1.0
    assert any("alpha_min" in reason for reason in advice.reasons)


def test_the_advice_builds_the_method_it_names():
    advice = inspect(tailed(), Rule("label-skew", 5, 0.3)).advice
    method = build_method("fedbb", advice.options)
    assert method.loss.beta == advice.beta
    assert method.loss.mu == advice.mu
    assert method.weighting.gamma == advice.gamma


def test_the_fragment_is_toml_that_says_the_same():
    advice = inspect(tailed(), Rule("label-skew", 5, 0.3)).advice
    data = {"name": "table", "path": 'odd "name"\\.csv', "options": {"a b": [1, True, "é\n"]}}
    values = tomllib.loads(write_fragment(advice, data))
    assert values == {"data": data, "method": {"name": "fedbb", "options": advice.options}}
    assert tomllib.loads(write_fragment(advice)).keys() == {"method"}
