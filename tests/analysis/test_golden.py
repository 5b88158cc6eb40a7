"""Numbers known beforehand: the paper's settings worked out on its own data sets' counts."""

import numpy as np
import pytest

from fedbb.analysis.inspect import inspect
from fedbb.analysis.label_statistics import Labels, measure_labels, no_patterns
from fedbb.analysis.measures import Settings, gini_of, measure_cases, measure_clients, ratio_of
from fedbb.imbalance import case_weights
from fedbb.partition.registry import Rule
from fedbb.records import Task
from reference.chest_xray14 import FINDINGS, IMAGES


def nih_cases(beta=0.9999999, tau=10.0):
    positive = np.array([row[0] for row in FINDINGS.values()], dtype=float)
    return measure_cases(positive, IMAGES - positive, Task.MULTILABEL, Settings(beta, tau))


@pytest.mark.parametrize("place", range(14), ids=list(FINDINGS))
def test_each_finding_of_chest_xray14_has_its_alpha_and_its_parts_of_the_loss(place):
    cases = nih_cases()
    _, alpha, raw, cased, classed = list(FINDINGS.values())[place]
    assert cases.alpha_positive[place] == pytest.approx(alpha, abs=1.1e-4)
    assert 100 * cases.raw[:, place] == pytest.approx(raw, abs=0.0051)
    assert 100 * cases.cased[:, place] == pytest.approx(cased, abs=0.0051)
    assert 100 * cases.classed[:, place] == pytest.approx(classed, abs=0.0051)


def test_on_chest_xray14_cases_become_even_and_classes_do_not():
    cases = nih_cases()
    assert 100 * cases.raw.sum(axis=1) == pytest.approx([5.17, 94.83], abs=0.005)
    assert 100 * cases.cased.sum(axis=1) == pytest.approx([49.99, 50.01], abs=0.005)
    totals = [stage.sum(axis=0) for stage in (cases.raw, cases.cased, cases.classed)]
    assert [ratio_of(total) for total in totals] == pytest.approx([1.0, 72.2, 59.5], abs=0.05)
    assert [gini_of(total) for total in totals] == pytest.approx([0.0, 0.44, 0.41], abs=0.005)
    assert ratio_of(cases.raw[0]) == pytest.approx(87.6, abs=0.05)


def test_tau_has_no_effect_on_chest_xray14_at_the_papers_beta():
    change = nih_cases(tau=10.0).alpha_positive - nih_cases(tau=1.0).alpha_positive
    assert np.abs(change).max() < 5e-4


CLIENT_ZERO = [976, 1632, 18, 1120, 0, 132, 0, 636, 3101, 0]


def test_the_first_client_of_cifar10_has_its_alphas():
    held = np.array(CLIENT_ZERO, dtype=float)
    cases = measure_cases(held, held.sum() - held, Task.MULTICLASS, Settings())
    expected = [0.83916, 0.74938, 0.99663, 0.81846, 1, 0.97571, 1, 0.89074, 0.57671, 1]
    assert cases.alpha_positive == pytest.approx(expected, abs=5e-6)


def cifar_split(concentration, sizes=(5000,) * 10):
    """Return the inspection of ten clients; a split depends on the labels' order, by class here."""
    labels = np.repeat(np.arange(10), sizes)
    return inspect(labels, Rule("label-skew", 10, concentration))


def test_every_reading_weighs_the_split_of_cifar10_as_was_worked_out_before():
    found = cifar_split(0.1)
    clients = found.clients
    sizes = [7615, 5142, 7498, 865, 2731, 6130, 6415, 3034, 6091, 4479]
    assert clients.samples.tolist() == sizes
    assert found.statistics.positive[0].tolist() == CLIENT_ZERO
    expected = {
        "printed": [0.1] * 10,
        "count-std": [0.058, 0.044, 0.043, 0.403, 0.124, 0.046, 0.059, 0.108, 0.041, 0.074],
        "share-std": [0.136, 0.069, 0.099, 0.107, 0.105, 0.086, 0.117, 0.101, 0.077, 0.102],
        "share-var": [0.179, 0.047, 0.095, 0.112, 0.106, 0.072, 0.132, 0.100, 0.057, 0.101],
    }
    for reading, weights in expected.items():
        assert clients.weights[reading] == pytest.approx(weights, abs=6e-4)
    by_size = [0.152, 0.103, 0.150, 0.017, 0.055, 0.123, 0.128, 0.061, 0.122, 0.090]
    assert clients.by_size == pytest.approx(by_size, abs=6e-4)


def test_the_spread_of_counts_lets_a_client_of_51_images_dominate():
    clients = cifar_split(0.05).clients
    smallest = int(clients.samples.argmin())
    assert clients.samples[smallest] == 51
    assert clients.weights["count-std"][smallest] == pytest.approx(0.885, abs=5e-4)


def test_mean_weights_of_cifar10_are_those_of_the_learning_rate_note():
    """μ·mean α⁺ over samples at δ = 0.1, β = 0.9999, μ = 4: from 1.25 to 2.87, mean 2.29."""
    weights = cifar_split(0.1).clients.loss_weight
    assert weights.min() == pytest.approx(1.25, abs=0.005)
    assert weights.max() == pytest.approx(2.87, abs=0.005)
    assert weights.mean() == pytest.approx(2.29, abs=0.005)


def test_a_beta_of_six_tenths_re_weights_nothing():
    labels = np.repeat(np.arange(10), 5000)
    found = inspect(labels, Rule("label-skew", 10, 0.5), settings=Settings(beta=0.6))
    assert "saturated" in [warning.kind for warning in found.warnings]
    assert found.cases.classed[0] == pytest.approx(found.cases.raw[0], abs=1e-9)


def test_a_client_of_one_class_weighs_nothing_in_pnb():
    labels = Labels(Task.MULTICLASS, ("a", "b"), np.zeros(50, dtype=np.int32), no_patterns(2))
    counted = measure_labels(labels, np.zeros(50, dtype=np.int64), ("all",))
    clients = measure_clients(counted, Settings())
    assert clients.loss_weight.tolist() == [0.0]
    assert clients.is_single.tolist() == [True]


@pytest.mark.parametrize(("beta", "tau"), [(0.9, 10.0), (0.9999, 3.0), (0.5, 0.1)])
def test_alpha_depends_on_beta_and_tau_only_through_one_number(beta, tau):
    positive, negative = np.array([3.0, 50.0, 4000.0]), np.array([5000.0, 70.0, 2.0])
    one, _ = case_weights(positive, negative, beta=beta, tau=tau)
    other, _ = case_weights(positive, negative, beta=beta ** (1 / tau), tau=1.0)
    assert one == pytest.approx(other, rel=1e-12)
