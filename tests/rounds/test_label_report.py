"""The client-balanced mean of one round of an NVFlare job, with replies nobody vouches for."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb import client_weights
from fedbb.aggregation.merging import ClientBalanced
from fedbb.errors import ReplyError
from fedbb.rounds.label_report import BalancedMean, Limits, describe_labels

SENT = {
    "layer.weight": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32),
    "norm.running_var": np.array([1.0, 1.0], np.float32),
    "norm.num_batches_tracked": np.array(5),
}
LABELS = {"a": [0, 1, 2, 0, 1, 2], "b": [0, 0, 0, 1], "c": [2] * 9 + [1]}
COUNTS = [[2, 2, 2], [3, 1, 0], [0, 1, 9]]


def make(limits=None, **weighting):
    return BalancedMean(SENT, ClientBalanced(**weighting), limits or Limits())


def trained(step, batches=6):
    changed = {name: array + np.float32(step) for name, array in SENT.items()}
    return changed | {"norm.num_batches_tracked": np.array(batches)}


def add(mean, name, arrays, labels=None, figures=None, **options):
    report = describe_labels(LABELS[name] if labels is None else labels, 3, "share-std")
    mean.add(name, lambda: arrays, report, figures or {}, **options)


def test_the_mean_has_the_weights_of_cbr():
    mean = make(floor=0.01)
    for step, name in enumerate("abc"):
        add(mean, name, trained(step), figures={"accuracy": step})
    merged = mean.merge()
    weights = client_weights(COUNTS, floor=0.01)
    assert [row.weight for row in merged.weights] == pytest.approx(weights)
    shift = weights @ [0, 1, 2]
    assert merged.arrays["layer.weight"] == pytest.approx(SENT["layer.weight"] + shift)
    assert merged.figures == {"accuracy": pytest.approx(shift)}
    assert merged.names == ("a", "b", "c")


def test_types_stay_and_integers_take_the_largest():
    mean = make()
    for batches, name in zip((7, 12, 9), "abc", strict=True):
        add(mean, name, trained(1, batches))
    arrays = mean.merge().arrays
    assert {name: array.dtype for name, array in arrays.items()} == {
        name: array.dtype for name, array in SENT.items()
    }
    assert arrays["norm.num_batches_tracked"] == 12


def test_the_order_of_arrival_changes_no_bit():
    replies = {name: trained(0.1 * place + 0.01) for place, name in enumerate("abc")}
    results = []
    for order in itertools.permutations("abc"):
        mean = make(gamma=0.5)
        for name in order:
            add(mean, name, replies[name])
        results.append(mean.merge().arrays["layer.weight"].tobytes())
    assert len(set(results)) == 1


@given(
    st.lists(st.floats(-5, 5, width=32), min_size=3, max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_changes_and_models_give_the_same_mean(steps, as_change):
    models, changes = make(), make()
    for name, step, change in zip("abc", steps, as_change, strict=True):
        arrays = {**SENT, "layer.weight": SENT["layer.weight"] + np.float32(step)}
        add(models, name, arrays)
        difference = {key: np.asarray(array - SENT[key]) for key, array in arrays.items()}
        add(changes, name, difference if change else arrays, is_change=change)
    merged = changes.merge()
    assert merged.is_change == all(as_change)
    base = SENT["layer.weight"] if merged.is_change else 0
    expected = models.merge().arrays["layer.weight"]
    assert base + merged.arrays["layer.weight"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("max_weight", [0.34, 0.5, 1.0])
def test_no_client_exceeds_max_weight(max_weight):
    mean = make(Limits(max_weight=max_weight))
    for name in "abc":
        add(mean, name, trained(1))
    rows = mean.merge().weights
    assert max(row.weight for row in rows) <= max_weight + 1e-12
    assert max(row.cbr for row in rows) > 0.9  # client a is balanced: the bound takes effect
    for column in ("uniform", "by_samples", "cbr", "weight"):
        assert sum(getattr(row, column) for row in rows) == pytest.approx(1)
    assert [row.by_samples for row in rows] == pytest.approx([0.3, 0.2, 0.5])


WRONG = {
    "misses": ({"layer.weight": SENT["layer.weight"]}, "misses"),
    "adds": ({**SENT, "more": np.zeros(1)}, "adds"),
    "shape": ({**SENT, "layer.weight": np.ones(1, np.float32)}, r"shape \(1,\)"),
    "type": ({**SENT, "layer.weight": np.ones((2, 2))}, "type"),
    "NaN": ({**SENT, "layer.weight": np.full((2, 2), np.nan, np.float32)}, "not finite"),
    "far": ({**SENT, "layer.weight": SENT["layer.weight"] + 10}, "norm"),
    "variance": ({**SENT, "norm.running_var": np.float32([-1, 1])}, "negative variance"),
}


@pytest.mark.parametrize(("arrays", "words"), WRONG.values(), ids=WRONG)
def test_a_model_that_does_not_fit_is_left_out(arrays, words):
    mean = make(Limits(max_norm=5, quorum=0))
    add(mean, "a", trained(0.5))
    with pytest.raises(ReplyError, match=words):
        add(mean, "b", arrays)
    assert mean.merge().names == ("a",)


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({}, "needs report_label_statistics"),
        ({"fedbb-samples": 5}, "no fedbb-share-std"),
        ({"fedbb-samples": 5, "fedbb-count-std": 0.1}, "no fedbb-share-std"),
        ({"fedbb-samples": 0, "fedbb-share-std": 1.0}, "no samples"),
        ({"fedbb-samples": -3, "fedbb-share-std": 0.1}, "samples is -3"),
        ({"fedbb-samples": 10**18, "fedbb-share-std": 0.1}, "samples is 10"),
        ({"fedbb-samples": 5, "fedbb-share-std": float("nan")}, "not a finite number"),
        ({"fedbb-samples": 5, "fedbb-share-std": -0.1}, "below 0"),
    ],
)
def test_a_report_that_is_missing_or_impossible_is_refused(report, words):
    with pytest.raises(ReplyError, match=words):
        make().add("a", lambda: trained(1), report, {})


def test_only_the_first_reply_of_a_client_counts():
    mean = make()
    add(mean, "a", trained(1))
    with pytest.raises(ReplyError, match="duplicate"):
        add(mean, "a", trained(2))
    assert mean.merge().arrays["layer.weight"] == pytest.approx(SENT["layer.weight"] + 1)


def test_a_round_below_its_quorum_gives_nothing():
    mean = make(Limits(quorum=0.6))
    mean.asked |= {"a", "b", "c", "d"}
    add(mean, "a", trained(1))
    add(mean, "b", trained(1))
    assert (mean.valid, mean.least, mean.merge()) == (2, 3, None)
    add(mean, "c", trained(1))
    assert mean.merge() is not None
    assert make(Limits(quorum=0)).merge() is None


def test_only_metrics_that_all_clients_have_are_averaged():
    mean = make()
    add(mean, "a", trained(1), figures={"loss": 1.0, "other": 2.0, "text": "x"})
    add(mean, "b", trained(1), figures={"loss": 1.0, "other": float("nan")})
    assert mean.merge().figures == {"loss": pytest.approx(1.0)}


@pytest.mark.parametrize(
    "limits", [{"quorum": 1.5}, {"max_weight": 0.0}, {"max_weight": 2}, {"max_norm": 0.0}]
)
def test_a_limit_outside_of_its_range_is_refused(limits):
    (name,) = limits
    with pytest.raises(ValueError, match=name):
        Limits(**limits)
