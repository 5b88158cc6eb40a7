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


def texts(labels, clients=None, **options):
    given = {key: options.pop(key) for key in ("classes", "patients") if key in options}
    found = inspect(labels, clients, **given, settings=Settings(**options))
    return {warning.kind: warning.text for warning in found.warnings}


def even(samples=100, classes=4):
    return np.arange(samples * classes) % classes


def test_an_even_federation_gives_no_warning_but_that_cbr_would_weigh_chance():
    owners = np.repeat([0, 1], 1000)
    assert list(texts(even(500), owners, beta=0.999)) == ["random-clients"]
    assert texts(even(500), beta=0.999) == {}


def test_clients_of_a_single_class_are_named():
    labels, owners = [0] * 50 + [1] * 50 + [0, 1] * 40, [0] * 50 + [1] * 50 + [2] * 80
    found = texts(labels, owners)
    assert "clients 0, 1:" in found["single-class"]
    assert "weight 0" in found["single-class"]


def test_a_multilabel_client_is_single_if_no_class_has_both_cases():
    labels, owners = [[1, 0]] * 40 + [[1, 0], [0, 1]] * 20, [0] * 40 + [1] * 40
    assert "client 0:" in texts(labels, owners)["single-class"]


def test_classes_that_nobody_or_one_client_has_are_named():
    labels, owners = [0, 1] * 50 + [0, 2] * 50, [0] * 100 + [1] * 100
    found = texts(labels, owners, classes=["a", "b", "c", "d"])
    assert "no sample is of d" in found["class-absent"]
    assert "AUC" in found["class-absent"]
    assert found["class-alone"].endswith("b, c")
    assert "class-alone" not in texts(labels)


def test_a_class_whose_labels_are_all_positive_has_no_auc():
    found = texts([[1, 0], [1, 1], [1, np.nan]] * 20)
    assert "every known label of 0 is positive" in found["class-full"]


def test_clients_smaller_than_a_batch_are_named():
    labels, owners = even(50), [0] * 20 + [1] * 180
    assert "client 0:" in texts(labels, owners)["small-client"]
    assert "small-client" not in texts(labels, owners, batch_size=20)


def test_patients_on_two_clients_are_told_of():
    labels, owners = even(25), [0] * 50 + [1] * 50
    assert "shared-patients" not in texts(labels, owners, patients=np.arange(100))
    assert "clients 0, 1" in texts(labels, owners, patients=np.arange(100) % 50)["shared-patients"]
    assert "shared-patients" not in texts(labels, owners, patients=owners)


def test_a_beta_that_saturates_and_one_that_smooths_nothing_are_told_apart():
    labels = np.repeat([0, 1], [5000, 500])
    assert "plain loss times a constant" in texts(labels, beta=0.6)["saturated"]
    assert "inverse frequency" in texts(labels, beta=0.9999999)["unsmoothed"]
    assert not {"saturated", "unsmoothed"} & set(texts(labels, beta=0.999))


def test_a_tiny_client_that_cbr_would_let_dominate_is_named_with_its_weight():
    labels, owners = np.append(even(1000), [0, 1, 2, 3] * 2), [0] * 4000 + [1] * 8
    found = texts(labels, owners)
    assert "client 1 has 8 samples, 0.20% of all, and would weigh 50.0%" in found["tiny-client"]
    assert "tiny-client" not in texts(labels, owners, gamma=0.0)


def test_long_lists_of_names_are_cut():
    found = texts([0] * 30, list(range(30)))
    assert "0, 1, 2, 3 and 26 more" in found["single-class"]


@pytest.mark.parametrize(("concentration", "expected"), [(0.1, False), (1e6, True)])
def test_clients_drawn_at_random_are_recognized(concentration, expected):
    found = texts(even(1000, 10), Rule("label-skew", 8, concentration))
    assert ("random-clients" in found) is expected


def test_iid_clients_of_very_different_sizes_are_recognized_as_random():
    found = texts(even(1000, 10), Rule("quantity-skew", 8, 0.5))
    assert "random-clients" in found


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
