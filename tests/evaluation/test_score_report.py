"""All scores against scikit-learn, where they have none, and their bootstrap intervals."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import expit, softmax
from sklearn.calibration import calibration_curve
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    brier_score_loss,
    confusion_matrix,
    f1_score,
    precision_score,
    recall_score,
    roc_auc_score,
)

from fedbb.evaluation.metrics import score_multiclass, score_multilabel
from fedbb.evaluation.score_report import Bootstrap, ScoreReport, score, score_model
from fedbb.records import FloatArray, Task

NAN = float("nan")
quick = settings(deadline=None, max_examples=25)
CLASSES = ("a", "b", "c")

# Few distinct values, so that ties are common.
logit = st.one_of(st.integers(-3, 3).map(float), st.floats(-9, 9, width=32))


@st.composite
def multiclass(draw: st.DrawFn) -> tuple[FloatArray, np.ndarray]:
    shape = draw(st.tuples(st.integers(1, 25), st.integers(2, 5)))
    labels = hnp.arrays(np.int64, shape[0], elements=st.integers(0, shape[1] - 1))
    return draw(hnp.arrays(np.float64, shape, elements=logit)), draw(labels)


@st.composite
def multilabel(draw: st.DrawFn) -> tuple[FloatArray, np.ndarray]:
    shape = draw(st.tuples(st.integers(1, 25), st.integers(1, 4)))
    labels = hnp.arrays(np.float32, shape, elements=st.sampled_from([0.0, 1.0, NAN]))
    return draw(hnp.arrays(np.float64, shape, elements=logit)), draw(labels)


def expected_error(truth: np.ndarray, probability: FloatArray) -> float:
    """Return the expected calibration error by scikit-learn's calibration curve."""
    # Its bins are open below, ours above; no probability in these tests lies on an edge but 0.
    frequency, mean = calibration_curve(truth, probability, n_bins=15)
    edges = np.linspace(0, 1, 16)
    number = np.bincount(np.searchsorted(edges[1:-1], probability), minlength=15)
    return float(np.sum(number[number > 0] * np.abs(frequency - mean)) / len(truth))


def check_guesses(found: dict[str, float], truth: np.ndarray, guess: np.ndarray) -> None:
    positive, negative = truth.any(), not truth.all()
    close = {"nan_ok": True, "abs": 1e-12}
    recall = recall_score(truth, guess) if positive else NAN
    assert found["recall"] == pytest.approx(recall, **close)
    refused = recall_score(~truth, ~guess) if len(truth) and negative else NAN
    assert found["specificity"] == pytest.approx(refused, **close)
    precision = precision_score(truth, guess) if guess.any() else NAN
    assert found["precision"] == pytest.approx(precision, **close)
    f1 = f1_score(truth, guess) if positive else NAN
    assert found["f1"] == pytest.approx(f1, **close)


def check_probabilities(found: dict[str, float], truth: np.ndarray, p: FloatArray) -> None:
    both = truth.any() and not truth.all()
    close = {"nan_ok": True, "abs": 1e-12}
    assert found["auroc"] == pytest.approx(roc_auc_score(truth, p) if both else NAN, **close)
    ranked = average_precision_score(truth, p) if both else NAN
    assert found["average_precision"] == pytest.approx(ranked, **close)
    brier = brier_score_loss(truth, p, labels=[False, True]) if len(truth) else NAN
    assert found["brier"] == pytest.approx(brier, **close)
    if both:
        assert found["ece"] == pytest.approx(expected_error(truth, p), **close)


@given(multiclass())
@quick
def test_figures_of_classes_agree_with_scikit_learn(case: tuple[FloatArray, np.ndarray]) -> None:
    logits, labels = case
    p = softmax(logits, axis=1)
    report = score(labels, p, replicates=0)
    guesses = p.argmax(axis=1)
    for place in range(p.shape[1]):
        found = {name: values[place] for name, values in report.per_class.items()}
        check_guesses(found, labels == place, guesses == place)
        check_probabilities(found, labels == place, p[:, place])
    everything = list(range(p.shape[1]))
    np.testing.assert_array_equal(
        report.confusion, confusion_matrix(labels, guesses, labels=everything)
    )
    assert report.macro["accuracy"] == pytest.approx(accuracy_score(labels, guesses))
    assert report.positives.tolist() == np.bincount(labels, minlength=p.shape[1]).tolist()


@given(multilabel())
@quick
def test_figures_of_labels_agree_with_scikit_learn(case: tuple[FloatArray, np.ndarray]) -> None:
    logits, labels = case
    p = expit(logits)
    report = score(labels, p, replicates=0)
    for place in range(p.shape[1]):
        known = ~np.isnan(labels[:, place])
        truth, chance = labels[known, place] == 1, p[known, place]
        found = {name: values[place] for name, values in report.per_class.items()}
        check_guesses(found, truth, chance > 0.5)
        check_probabilities(found, truth, chance)
        cells = confusion_matrix(truth, chance > 0.5, labels=[False, True]) if len(truth) else 0
        np.testing.assert_array_equal(report.confusion[place], cells)
        assert report.positives[place] + report.negatives[place] == known.sum()


@given(st.one_of(multiclass(), multilabel()))
@quick
def test_a_report_of_logits_agrees_with_the_scores_of_rounds(
    case: tuple[FloatArray, np.ndarray],
) -> None:
    logits, labels = case
    task = Task.MULTICLASS if labels.ndim == 1 else Task.MULTILABEL
    names = tuple(map(str, range(logits.shape[1])))
    report = score_model(logits, labels, task, names)
    scores = (score_multiclass if labels.ndim == 1 else score_multilabel)(logits, labels)
    assert {name: report.defined[name] for name in scores.defined} == scores.defined
    for name, value in scores.macro.items():
        assert report.macro[name] == pytest.approx(value, nan_ok=True)
    for name, values in scores.per_class.items():
        np.testing.assert_allclose(report.per_class[name], values, atol=1e-12)


def test_the_error_of_the_predicted_class_worked_by_hand() -> None:
    """Confidences 0.8, 0.82 share a bin (11 of 15: 0.8 to 0.867); one of two is right: gap 0.31.

    0.5 is alone and right: gap 0.5. In all (2 × 0.31 + 1 × 0.5) / 3.
    """
    p = [[0.8, 0.2], [0.82, 0.18], [0.5, 0.5]]
    report = score([0, 1, 0], p, replicates=0)
    assert report.macro["top_label_ece"] == pytest.approx((2 * 0.31 + 0.5) / 3)


def test_classes_with_few_cases_stay_out_of_the_second_mean() -> None:
    p = np.full((25, 3), 0.2)
    labels = np.array([0] * 12 + [1] * 12 + [2])
    p[np.arange(25), labels] = 0.6
    p[24] = [0.6, 0.2, 0.2]  # the only case of class c is missed
    report = score(labels, p, classes=CLASSES, replicates=0)
    assert report.few == ("c",)
    assert report.macro["recall"] == pytest.approx(2 / 3)
    assert report.macro_min_cases["recall"] == 1
    assert (report.defined["recall"], report.defined_min_cases["recall"]) == (3, 2)
    assert math.isnan(report.per_class["precision"][2])
    assert (report.defined["precision"], report.defined_min_cases["precision"]) == (2, 2)


def test_a_client_of_one_class_has_no_ranks_and_no_zeros_for_absent_classes() -> None:
    report = score([1, 1], [[0.3, 0.6, 0.1], [0.5, 0.4, 0.1]], replicates=50)
    np.testing.assert_array_equal(report.per_class["recall"], [NAN, 0.5, NAN])
    np.testing.assert_array_equal(report.per_class["specificity"], [0.5, NAN, 1.0])
    assert np.isnan(report.per_class["auroc"]).all()
    assert math.isnan(report.macro["auroc"])
    assert report.defined["auroc"] == 0
    assert report.macro["balanced_accuracy"] == 0.5
    assert report.intervals is not None
    assert np.isnan(report.intervals.per_class["recall"][:, 0]).all()
    assert report.macro_min_cases["accuracy"] == 0.5
    assert math.isnan(report.macro_min_cases["recall"])


def test_probabilities_that_are_all_equal_rank_at_one_half() -> None:
    report = score([0, 1, 0, 1], np.full(4, 0.5), replicates=0)
    np.testing.assert_array_equal(report.per_class["auroc"], [0.5, 0.5])
    np.testing.assert_array_equal(report.per_class["average_precision"], [0.5, 0.5])


@pytest.mark.parametrize("shape", [(0,), (0, 3)])
def test_no_samples_give_nan_and_no_intervals(shape: tuple[int, ...]) -> None:
    report = score(np.empty(shape, int if len(shape) == 1 else float), np.empty((0, 3)))
    assert np.isnan(list(report.macro.values())).all()
    assert report.intervals is None
    assert set(report.defined.values()) == {0}


def example(samples: int = 120) -> tuple[np.ndarray, FloatArray]:
    rng = np.random.default_rng(5)
    p = rng.dirichlet(np.ones(3), samples)
    return np.array([rng.choice(3, p=row) for row in p]), p


def test_intervals_follow_from_replicates_drawn_one_by_one() -> None:
    labels, p = example(40)
    report = score(labels, p, replicates=60, seed=3)
    counts = np.hstack(list(Bootstrap(60, 3).blocks(40, 3))).astype(int)
    assert (counts.sum(axis=0) == 40).all()
    drawn = [np.repeat(np.arange(40), counts[:, replicate]) for replicate in range(60)]
    again = [score(labels[rows], p[rows], replicates=0) for rows in drawn]
    assert report.intervals is not None
    for name, ends in report.intervals.per_class.items():
        values = np.stack([one.per_class[name] for one in again])
        np.testing.assert_allclose(ends, np.nanquantile(values, [0.025, 0.975], axis=0))
    for name, ends in report.intervals.macro.items():
        figures = [one.macro[name] for one in again]
        np.testing.assert_allclose(ends, np.nanquantile(figures, [0.025, 0.975]))


def test_intervals_are_reproducible_and_depend_on_the_seed() -> None:
    first, again, other = (score(*example(), replicates=100, seed=seed) for seed in (1, 1, 2))
    assert first.to_json() == again.to_json()
    assert first.to_json()["per_class"] == other.to_json()["per_class"]
    assert first.to_json()["intervals"] != other.to_json()["intervals"]


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for seed in range(150):
        labels = (rng.random(200) < 0.5).astype(int)
        right = rng.random(200) < 0.8
        p = np.where(right == labels, 0.9, 0.1)
        report = score(labels, p, replicates=200, seed=seed)
        assert report.intervals is not None
        low, high = report.intervals.macro["accuracy"]
        covered += low <= 0.8 <= high
    assert 0.89 <= covered / 150 <= 0.99


def test_groups_are_drawn_whole_and_widen_the_interval() -> None:
    labels, p = example(60)
    repeated = np.tile(labels, 5), np.tile(p, (5, 1))
    patients = np.tile([f"patient {number}" for number in range(60)], 5)
    alone = score(labels, p, replicates=300).intervals
    naive = score(*repeated, replicates=300).intervals
    grouped = score(*repeated, groups=patients, replicates=300).intervals
    assert alone is not None
    assert naive is not None
    assert grouped is not None
    assert grouped.groups == 60
    width = [ends.macro["f1"].high - ends.macro["f1"].low for ends in (alone, naive, grouped)]
    assert width[1] < 0.6 * width[0]
    assert width[2] == pytest.approx(width[0], rel=0.35)


def test_thresholds_decide_for_labels_and_for_two_classes() -> None:
    p = np.array([0.2, 0.35, 0.6, 0.9])
    report = score([0, 1, 0, 1], p, thresholds=0.3, replicates=0)
    assert report.confusion.tolist() == [[1, 1], [0, 2]]
    labels = score([[0.0], [1.0], [0.0], [1.0]], p[:, None], thresholds=[0.3], replicates=0)
    assert labels.confusion.tolist() == [[[1, 1], [0, 2]]]
    with pytest.raises(ValueError, match="thresholds are for multi-label data and for two classes"):
        score([0, 1, 2], np.eye(3), thresholds=0.3)


@given(st.one_of(multiclass(), multilabel()))
@settings(deadline=None, max_examples=15)
def test_json_brings_a_report_back(case: tuple[FloatArray, np.ndarray]) -> None:
    logits, labels = case
    p = softmax(logits, axis=1) if labels.ndim == 1 else expit(logits)
    plain = score(labels, p, replicates=20).to_json()
    text = json.dumps(plain, allow_nan=False)
    assert ScoreReport.from_json(json.loads(text)).to_json() == plain


def test_rows_name_every_figure_with_its_interval() -> None:
    row = score(*example(), classes=CLASSES, replicates=20).rows()[1]
    assert row["class"] == "b"
    assert row["enough_cases"]
    assert row["recall_low"] <= row["recall"] <= row["recall_high"]


@pytest.mark.parametrize(
    ("targets", "probabilities", "options", "message"),
    [
        ([0, 1], [[0.5, 0.5], [1.5, -0.5]], {}, r"probabilities\[1, 0\] is 1.5, not in \[0, 1\]"),
        ([0, 1], [[0.5, 0.5], [0.5, 0.2]], {}, "sample 1 sum to 0.7, not to 1"),
        ([0, 2], [[0.5, 0.5], [0.5, 0.5]], {}, "label 2 is not a class; allowed: 0 to 1"),
        ([0, 1], [0.5, 0.5], {"classes": "abc"}, "3 classes and 2 probabilities each"),
        (["yes", "nn"], [0.5, 0.5], {"classes": ("no", "yes")}, r"targets\[1\] is 'nn'"),
        ([0, 1], [0.5, 0.5], {"groups": [1]}, r"groups must have shape \(2,\)"),
        ([0, 1], np.zeros((2, 2, 2)), {}, r"must have shape \(samples, classes\)"),
    ],
)
def test_what_does_not_fit_is_refused(
    targets: Any, probabilities: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        score(targets, probabilities, **options)
