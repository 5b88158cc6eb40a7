"""Scores against their meaning, against scikit-learn, and where they have none."""

import json
from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    f1_score,
    recall_score,
    roc_auc_score,
)

from fedbb.evaluation.metrics import (
    Scorer,
    Scores,
    is_collapsed,
    log_odds,
    own_accuracy,
    rank_areas,
    score_multiclass,
    score_multilabel,
)
from fedbb.records import FloatArray
from fedbb.state import digest, snapshot
from helpers.toy import toy_dataset, toy_network
from reference.auroc import auroc
from reference.average_precision import average_precision

MACRO = {"accuracy", "balanced_accuracy", "f1", "auroc", "average_precision"}
PER_CLASS = {"recall", "f1", "auroc", "average_precision"}
NAN = float("nan")
quick = settings(deadline=None, max_examples=25)

# Few distinct values, so that ties are common.
coarse = st.integers(-3, 3).map(lambda step: step / 2)
fine = st.floats(-1e4, 1e4, width=32)


@st.composite
def multiclass(draw: st.DrawFn) -> tuple[FloatArray, np.ndarray]:
    shape = draw(st.tuples(st.integers(1, 25), st.integers(1, 5)))
    logits = draw(hnp.arrays(np.float64, shape, elements=st.one_of(coarse, fine)))
    labels = draw(hnp.arrays(np.int64, shape[0], elements=st.integers(0, shape[1] - 1)))
    return logits, labels


@st.composite
def multilabel(draw: st.DrawFn) -> tuple[FloatArray, np.ndarray]:
    shape = draw(st.tuples(st.integers(1, 25), st.integers(1, 4)))
    logits = draw(hnp.arrays(np.float64, shape, elements=st.one_of(coarse, fine)))
    entries = st.sampled_from([0.0, 1.0, NAN])
    return logits, draw(hnp.arrays(np.float32, shape, elements=entries))


def assert_same(first: Scores, second: Scores) -> None:
    assert (first.samples, first.defined) == (second.samples, second.defined)
    np.testing.assert_equal(first.macro, second.macro)
    np.testing.assert_equal(first.per_class, second.per_class)


def assert_means_are_of_defined_classes(scores: Scores) -> None:
    assert set(scores.macro) == set(scores.defined) == MACRO
    assert set(scores.per_class) == PER_CLASS
    for name in ("f1", "auroc", "average_precision"):
        vector = scores.per_class[name]
        present = vector[~np.isnan(vector)]
        assert scores.defined[name] == len(present)
        expected = present.mean() if len(present) else NAN
        np.testing.assert_allclose(scores.macro[name], expected)


def test_multiclass_figures_of_five_samples_worked_by_hand() -> None:
    """Truth 0 0 1 1 2, guesses 0 1 1 1 1, four classes, the last never occurs.

    Recalls 1/2, 1, 0. F1: class 0 has 1 hit, 2 true, 1 guessed: 2/3; class 1 has 2, 2, 4: 2/3.
    Class 0 is sure in samples 0 (p high) and 1 (lower), still above the others' zero: AUROC 1.
    """
    logits = np.log([[7, 1, 1, 1], [3, 5, 1, 1], [1, 7, 1, 1], [1, 7, 1, 1], [2, 6, 1, 1.0]])
    scores = score_multiclass(logits, [0, 0, 1, 1, 2])
    assert scores.samples == 5
    assert scores.macro["accuracy"] == 3 / 5
    np.testing.assert_allclose(scores.per_class["recall"], [1 / 2, 1, 0, NAN])
    np.testing.assert_allclose(scores.per_class["f1"], [2 / 3, 2 / 3, 0, NAN])
    # class 2: all five probabilities are 1/10, so every pair is a tie
    np.testing.assert_allclose(scores.per_class["auroc"], [1, 1, 1 / 2, NAN])
    np.testing.assert_allclose(scores.per_class["average_precision"], [1, 1, 1 / 5, NAN])
    assert scores.macro["balanced_accuracy"] == pytest.approx(1 / 2)
    assert scores.macro["f1"] == pytest.approx(4 / 9)
    assert scores.macro["auroc"] == pytest.approx(5 / 6)
    assert scores.defined == {
        "accuracy": 4, "balanced_accuracy": 3, "f1": 3, "auroc": 3, "average_precision": 3
    }  # fmt: skip


def test_multilabel_figures_with_unknown_labels_worked_by_hand() -> None:
    """Three classes: both cases with an unknown between, positives only, nothing known.

    Class 0: truth 1 0 1 0 at logits 2 1 −1 −2: one of two found, one of two refused; pairs 3 of 4.
    Average precision: 1/1 at the first, 2/3 at the third, each for half the recall: 5/6.
    Class 1: both found. Right entries: 2 + 2 of 4 + 2.
    """
    labels = [[1, 1, NAN], [0, NAN, NAN], [NAN, NAN, NAN], [1, NAN, NAN], [0, 1, NAN]]
    logits = [[2, 3, 1], [1, -9, 1], [9, -9, 1], [-1, -9, 1], [-2, 4, 1]]
    scores = score_multilabel(logits, labels)
    assert scores.macro["accuracy"] == pytest.approx(4 / 6)
    np.testing.assert_allclose(scores.per_class["recall"], [1 / 2, 1, NAN])
    np.testing.assert_allclose(scores.per_class["f1"], [1 / 2, 1, NAN])
    np.testing.assert_allclose(scores.per_class["auroc"], [3 / 4, NAN, NAN])
    np.testing.assert_allclose(scores.per_class["average_precision"], [5 / 6, NAN, NAN])
    assert scores.macro["balanced_accuracy"] == pytest.approx(1 / 2)
    assert scores.defined == {
        "accuracy": 2, "balanced_accuracy": 1, "f1": 2, "auroc": 1, "average_precision": 1
    }  # fmt: skip


def test_probability_one_half_is_not_a_positive_guess() -> None:
    scores = score_multilabel([[0.0], [0.0]], [[1], [0]])
    np.testing.assert_equal(scores.per_class["recall"], [0.0])
    assert scores.macro["accuracy"] == 0.5


def check_ranks(scores: Scores, truth: np.ndarray, known: np.ndarray, ranking: FloatArray) -> None:
    """Compare the ranks of each class with the references, or NaN where a case is missing."""
    measures: dict[str, Callable[..., float]] = {
        "auroc": auroc,
        "average_precision": average_precision,
    }
    for index in range(truth.shape[1]):
        chosen = known[:, index]
        cases, order = truth[chosen, index].tolist(), ranking[chosen, index].tolist()
        is_defined = any(cases) and not all(cases)
        for name, measure in measures.items():
            expected = measure(cases, order) if is_defined else NAN
            np.testing.assert_allclose(scores.per_class[name][index], expected, atol=1e-12)


@given(multiclass())
@quick
def test_multiclass_ranks_agree_with_brute_force(case: tuple[FloatArray, np.ndarray]) -> None:
    logits, labels = case
    truth = labels[:, None] == np.arange(logits.shape[1])
    check_ranks(score_multiclass(*case), truth, np.ones_like(truth), log_odds(logits))


@pytest.mark.parametrize("size", [2, 3, 10, 100, 3000])
@pytest.mark.parametrize("values", [1, 2, 20, None])
def test_areas_of_ranks_have_the_bits_of_scikit_learn(size: int, values: int | None) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        truth = rng.random(size) < rng.random()
        truth[:2] = True, False
        ranking = rng.normal(size=size) if values is None else rng.integers(values, size=size) / 10
        expected = roc_auc_score(truth, ranking), average_precision_score(truth, ranking)
        assert rank_areas(truth, ranking) == expected


@given(multilabel())
@quick
def test_multilabel_ranks_agree_with_brute_force(case: tuple[FloatArray, np.ndarray]) -> None:
    logits, labels = case
    check_ranks(score_multilabel(*case), labels == 1, ~np.isnan(labels), logits)


@given(multiclass())
@quick
def test_multiclass_shares_agree_with_scikit_learn(case: tuple[FloatArray, np.ndarray]) -> None:
    logits, labels = case
    guesses, present = logits.argmax(axis=1), np.unique(labels)
    scores = score_multiclass(logits, labels)
    recall = recall_score(labels, guesses, labels=present, average=None)
    f1 = f1_score(labels, guesses, labels=present, average=None)
    np.testing.assert_allclose(scores.per_class["recall"][present], recall)
    np.testing.assert_allclose(scores.per_class["f1"][present], f1)
    assert scores.macro["accuracy"] == pytest.approx(accuracy_score(labels, guesses))
    assert scores.macro["balanced_accuracy"] == pytest.approx(recall.mean())
    assert scores.defined["balanced_accuracy"] == scores.defined["f1"] == len(present)
    assert_means_are_of_defined_classes(scores)


@given(multilabel())
@quick
def test_multilabel_shares_agree_with_scikit_learn(case: tuple[FloatArray, np.ndarray]) -> None:
    logits, labels = case
    scores = score_multilabel(logits, labels)
    balanced = []
    for index in range(labels.shape[1]):
        known = ~np.isnan(labels[:, index])
        truth, guess = labels[known, index] == 1, logits[known, index] > 0
        if truth.any():
            assert scores.per_class["recall"][index] == pytest.approx(recall_score(truth, guess))
            assert scores.per_class["f1"][index] == pytest.approx(f1_score(truth, guess))
        if truth.any() and not truth.all():
            balanced.append(recall_score(truth, guess, average="macro"))
    known = ~np.isnan(labels)
    if known.any():
        right = accuracy_score(labels[known] == 1, logits[known] > 0)
        assert scores.macro["accuracy"] == pytest.approx(right)
    assert scores.defined["balanced_accuracy"] == len(balanced)
    if balanced:
        assert scores.macro["balanced_accuracy"] == pytest.approx(np.mean(balanced))
    assert_means_are_of_defined_classes(scores)


@given(st.one_of(multiclass(), multilabel()), st.randoms(use_true_random=False))
@quick
def test_the_order_of_samples_does_not_matter(
    case: tuple[FloatArray, np.ndarray], random: Random
) -> None:
    logits, labels = case
    order = np.array(random.sample(range(len(labels)), len(labels)))
    score = score_multiclass if labels.ndim == 1 else score_multilabel
    assert_same(score(logits, labels), score(logits[order], labels[order]))


@given(st.one_of(multiclass(), multilabel()))
@quick
def test_json_brings_every_number_back(case: tuple[FloatArray, np.ndarray]) -> None:
    score = score_multiclass if case[1].ndim == 1 else score_multilabel
    scores = score(*case)
    text = json.dumps(scores.as_json(), allow_nan=False)
    assert_same(Scores.from_json(json.loads(text)), scores)


def test_log_odds_are_those_of_the_softmax() -> None:
    logits = np.random.default_rng(0).normal(scale=3, size=(50, 6))
    share = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(log_odds(logits), np.log(share / (1 - share)), atol=1e-9)


def test_a_network_too_sure_for_floating_point_is_still_ranked() -> None:
    """Softmax rounds all three first probabilities to 1; the odds e⁵⁰, e⁶⁰, e⁹⁰⁰ keep an order."""
    logits = [[50.0, 0.0], [60.0, 0.0], [900.0, 0.0]]
    scores = score_multiclass(logits, [1, 0, 0])
    np.testing.assert_array_equal(scores.per_class["auroc"], [1.0, 1.0])


@pytest.mark.parametrize(
    ("score", "labels"), [(score_multiclass, (0,)), (score_multilabel, (0, 3))]
)
def test_no_samples_give_nan_everywhere_and_no_warning(
    score: Callable[..., Scores], labels: tuple[int, ...]
) -> None:
    scores = score(np.empty((0, 3)), np.empty(labels))
    assert scores.samples == 0
    assert set(scores.defined.values()) == {0}
    assert np.isnan(list(scores.macro.values())).all()
    assert all(np.isnan(vector).all() and len(vector) == 3 for vector in scores.per_class.values())


def test_a_single_class_is_all_right_and_has_no_rank() -> None:
    scores = score_multiclass([[0.3], [-2.0]], [0, 0])
    assert scores.macro["accuracy"] == scores.macro["balanced_accuracy"] == scores.macro["f1"] == 1
    assert np.isnan(scores.macro["auroc"])
    assert scores.defined["auroc"] == scores.defined["average_precision"] == 0


@pytest.mark.parametrize("bad", [NAN, float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("score", "labels"), [(score_multiclass, [0, 1]), (score_multilabel, [[0, 1], [1, 0]])]
)
def test_logits_that_are_not_finite_are_refused_with_their_place(
    score: Callable[..., Scores], labels: list[object], bad: float
) -> None:
    with pytest.raises(ValueError, match=r"logits\[1, 0\] is .*not finite"):
        score([[0.0, 1.0], [bad, 0.0]], labels)


@pytest.mark.parametrize(
    ("score", "labels", "message"),
    [
        (score_multiclass, [0, 2], "label 2 is not a class; allowed: 0 to 1"),
        (score_multiclass, [-1, 0], "label -1 is not a class"),
        (score_multiclass, [0], r"labels must have shape \(2,\)"),
        (score_multilabel, [[0, 1], [1, 2]], r"label 2.0 is not 0, 1 or NaN"),
        (score_multilabel, [0, 1], r"labels must have shape \(2, 2\)"),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    score: Callable[..., Scores], labels: list[object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        score([[0.0, 1.0], [1.0, 0.0]], labels)


@pytest.mark.parametrize("logits", [[1.0, 2.0], [[]], 3.0])
def test_logits_of_another_shape_are_refused(logits: object) -> None:
    with pytest.raises(ValueError, match=r"shape \(samples, classes\)"):
        score_multiclass(logits, [0])


def test_a_perfect_ranking_scores_one_and_no_rounding_more() -> None:
    # scikit-learn gives 1.0000000000000002 for nine cases ranked before two others.
    labels = np.array([[1.0]] * 9 + [[0.0]] * 2)
    scores = score_multilabel(-np.arange(11.0)[:, None], labels)
    assert scores.macro["average_precision"] == scores.macro["auroc"] == 1.0


def test_own_accuracy_is_that_of_a_test_set_in_the_clients_proportions():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 50)
    logits = rng.normal(size=(200, 4)) + 2 * np.eye(4)[labels]
    recall = score_multiclass(logits, labels).per_class["recall"]
    cases = np.array([3.0, 1.0, 0.0, 2.0])
    mixed = np.concatenate(
        [np.repeat(np.flatnonzero(labels == c), int(cases[c])) for c in range(4)]
    )
    assert own_accuracy(recall, cases) == pytest.approx(
        score_multiclass(logits[mixed], labels[mixed]).macro["accuracy"], abs=1e-12
    )


def test_even_cases_give_balanced_accuracy():
    recall = np.array([0.2, 0.4, 0.9])
    assert own_accuracy(recall, np.full(3, 7.0)) == pytest.approx(0.5)


def test_a_class_without_test_images_stays_out():
    recall = np.array([0.2, np.nan, 0.8])
    assert own_accuracy(recall, np.array([1.0, 98.0, 1.0])) == pytest.approx(0.5)
    assert np.isnan(own_accuracy(recall, np.array([0.0, 5.0, 0.0])))


FOUR_CLASSES = np.array([0, 1, 2, 0])
FOUR_LABELS = np.array([[1, 0], [0, 1], [0, 0], [1, 1]])


def per_class(scores):
    return scores.as_json()["per_class"]


@pytest.mark.parametrize("row", [[0.0, 0.0, 0.0], [3.0, -1.0, 0.5]])
def test_the_same_scores_for_all_are_a_collapse_of_classes(row):
    assert is_collapsed(per_class(score_multiclass(np.tile(row, (4, 1)), FOUR_CLASSES)))


@pytest.mark.parametrize("row", [[0.0, 0.0], [3.0, -1.0]])
def test_the_same_scores_for_all_are_a_collapse_of_labels(row):
    assert is_collapsed(per_class(score_multilabel(np.tile(row, (4, 1)), FOUR_LABELS)))


def test_scores_that_differ_are_none():
    rng = np.random.default_rng(0)
    assert not is_collapsed(per_class(score_multiclass(rng.normal(size=(4, 3)), FOUR_CLASSES)))


def test_half_ranks_with_some_right_and_some_wrong_are_none():
    logits = np.array([[1.0], [-1.0], [1.0], [-1.0]])
    found = per_class(score_multilabel(logits, np.array([[1], [1], [0], [0]])))
    assert found["auroc"] == [0.5]
    assert not is_collapsed(found)


def test_without_any_ranked_class_nothing_is_told():
    assert not is_collapsed({"auroc": [None, None], "recall": [None, 1.0]})


def test_scores_are_those_of_the_network_at_rest():
    """No dropout, and no statistics of batch norm that move."""
    dataset, model = toy_dataset(), toy_network(dropout=0.5)
    state = snapshot(model)
    scorer = Scorer(model.train(), dataset, {"test": dataset.test}, batch_size=7)
    first, second = (scorer(state)["test"].as_json() for _ in range(2))
    assert first == second
    assert digest(snapshot(model)) == digest(state)
