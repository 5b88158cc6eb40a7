"""Numbers known beforehand: the paper's settings worked out on its own data sets' counts."""

import numpy as np
import pytest

from fedbb.analysis.inspect import inspect
from fedbb.analysis.label_statistics import Labels, measure_labels, no_patterns
from fedbb.analysis.measures import Settings, gini_of, measure_cases, measure_clients, ratio_of
from fedbb.imbalance import case_weights
from fedbb.partition.registry import Rule
from fedbb.records import Task

NIH = {
    "Atelectasis": (11559, 0.8969, (0.74, 6.41), (7.06, 7.06), (6.97, 6.97)),
    "Cardiomegaly": (2776, 0.9752, (0.18, 6.97), (1.84, 1.84), (1.98, 1.98)),
    "Effusion": (13317, 0.8812, (0.85, 6.29), (7.99, 7.99), (7.75, 7.75)),
    "Infiltration": (19894, 0.8225, (1.27, 5.88), (11.14, 11.14), (10.08, 10.09)),
    "Mass": (5782, 0.9484, (0.37, 6.77), (3.73, 3.73), (3.90, 3.90)),
    "Nodule": (6331, 0.9435, (0.40, 6.74), (4.07, 4.07), (4.22, 4.22)),
    "Pneumonia": (1431, 0.9872, (0.09, 7.05), (0.96, 0.96), (1.04, 1.05)),
    "Pneumothorax": (5302, 0.9527, (0.34, 6.81), (3.44, 3.44), (3.61, 3.61)),
    "Consolidation": (4667, 0.9584, (0.30, 6.85), (3.04, 3.05), (3.21, 3.21)),
    "Edema": (2303, 0.9795, (0.15, 7.00), (1.54, 1.54), (1.66, 1.66)),
    "Emphysema": (2516, 0.9776, (0.16, 6.98), (1.67, 1.67), (1.80, 1.80)),
    "Fibrosis": (1686, 0.9850, (0.11, 7.04), (1.13, 1.13), (1.23, 1.23)),
    "Pleural_Thickening": (3385, 0.9698, (0.22, 6.93), (2.23, 2.24), (2.39, 2.39)),
    "Hernia": (227, 0.9980, (0.01, 7.13), (0.15, 0.15), (0.17, 0.17)),
}
FILMS = 112_120


def nih_cases(beta=0.9999999, tau=10.0):
    positive = np.array([row[0] for row in NIH.values()], dtype=float)
    return measure_cases(positive, FILMS - positive, Task.MULTILABEL, Settings(beta, tau))


@pytest.mark.parametrize("place", range(14), ids=list(NIH))
def test_each_finding_of_chest_xray14_has_its_alpha_and_its_parts_of_the_loss(place):
    cases = nih_cases()
    _, alpha, raw, cased, classed = list(NIH.values())[place]
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
