import numpy as np
import pytest

from fedbb.analysis.inspect import inspect
from fedbb.analysis.measures import Settings
from fedbb.partition.registry import Rule


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
