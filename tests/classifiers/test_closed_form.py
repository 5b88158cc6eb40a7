"""Classifiers in closed form: equal to scikit-learn's, defined where classes are absent."""

import numpy as np
import pytest
import torch
from sklearn.covariance import oas
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import NearestCentroid

from fedbb.classifiers.closed_form import ClosedForm, oas_shrinkage
from fedbb.classifiers.head import Head
from fedbb.classifiers.sums import add_sums, sum_embeddings
from fedbb.records import Task

MULTICLASS, MULTILABEL = Task
CENTRES = np.array([[0, 0, 1, 0, 0], [2, 0, 0, 1, 0], [0, 3, 0, 0, 0.5], [1, 1, 1, 1, 1]])


def drawn(counts: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return correlated embeddings (N, 5) around a centre for each class, and the classes."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    noise = rng.normal(size=(len(labels), 5)) @ rng.normal(size=(5, 5))
    return CENTRES[labels] + noise, labels


def fitted(form: ClosedForm, embeddings, labels, classes: int = 4, task: Task = MULTICLASS) -> Head:
    rows = torch.from_numpy(embeddings), torch.from_numpy(labels)
    return form.fit(sum_embeddings(*rows, classes, task), task)


def check_same_logits(head: Head, embeddings, logits) -> None:
    """Compare logits up to what is common to all classes of a sample."""
    own = head(torch.from_numpy(embeddings)).numpy()
    centred = [values - values.mean(axis=1, keepdims=True) for values in (own, logits)]
    np.testing.assert_allclose(*centred, rtol=1e-8, atol=1e-8)


UNEVEN, EVEN = [50, 9, 30, 4], [20, 20, 20, 20]


@pytest.mark.parametrize("solver", ["lsqr", "eigen"])
@pytest.mark.parametrize("shrinkage", [0.0, 0.1, 1.0])
def test_lda_with_the_federations_prior_is_that_of_scikit_learn(shrinkage, solver):
    embeddings, labels = drawn(UNEVEN)
    theirs = LinearDiscriminantAnalysis(solver=solver, shrinkage=shrinkage or None)
    theirs.fit(embeddings, labels)
    ours = fitted(ClosedForm("lda", "federation", shrinkage), embeddings, labels)
    check_same_logits(ours, embeddings, theirs.decision_function(embeddings))


@pytest.mark.parametrize("shrinkage", [0.0, 0.3])
def test_lda_with_equal_priors_is_that_of_scikit_learn(shrinkage):
    embeddings, labels = drawn(EVEN)
    theirs = LinearDiscriminantAnalysis(
        solver="lsqr", shrinkage=shrinkage or None, priors=[0.25] * 4
    ).fit(embeddings, labels)
    ours = fitted(ClosedForm("lda", "equal", shrinkage), embeddings, labels)
    check_same_logits(ours, embeddings, theirs.decision_function(embeddings))
    # Of uneven classes scikit-learn averages the covariances by the prior, which takes one
    # covariance for each class. The pooled covariance is that of the classes' own frequencies.
    embeddings, labels = drawn(UNEVEN)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage or None)
    theirs.fit(embeddings, labels)
    logits = theirs.decision_function(embeddings) - np.log(theirs.priors_)
    ours = fitted(ClosedForm("lda", "equal", shrinkage), embeddings, labels)
    check_same_logits(ours, embeddings, logits)


@pytest.mark.parametrize(("counts", "prior"), [(UNEVEN, "federation"), (EVEN, "equal")])
@pytest.mark.parametrize("shrinkage", [0.0, 0.2, 0.9])
def test_ridge_is_scikit_learns_ridge_classifier(counts, prior, shrinkage):
    embeddings, labels = drawn(counts)
    variance = np.cov(embeddings.T, bias=True).trace() / 5
    alpha = len(labels) * shrinkage / (1 - shrinkage) * variance
    theirs = RidgeClassifier(alpha=alpha, solver="svd").fit(embeddings, labels)
    head = fitted(ClosedForm("ridge", prior, shrinkage), embeddings, labels)
    np.testing.assert_allclose(head.weight.numpy(), theirs.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(head.bias.numpy(), theirs.intercept_, rtol=1e-8)


def test_balanced_ridge_is_that_of_data_with_every_class_as_often():
    """Doubling a class's samples one by one keeps its mean and covariance, and balances classes.

    All classes have the same covariance here, so that pooling changes nothing.
    """
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(6, 5))
    noise -= noise.mean(axis=0)
    labels = np.repeat([0, 1, 1, 2, 2, 2, 2, 3], 6)
    embeddings = CENTRES[labels] + np.tile(noise, (8, 1))
    even = np.repeat(np.arange(4), 6)
    theirs = RidgeClassifier(alpha=3.0, solver="svd")
    theirs.fit(CENTRES[even] + np.tile(noise, (4, 1)), even)
    balanced = RidgeClassifier(alpha=3.0 * 48 / 24, solver="svd", class_weight="balanced")
    balanced.fit(embeddings, labels)
    np.testing.assert_allclose(theirs.coef_, balanced.coef_, atol=1e-10)
    variance = np.cov((CENTRES[even] + np.tile(noise, (4, 1))).T, bias=True).trace() / 5
    share = 3.0 / 24 / variance
    head = fitted(ClosedForm("ridge", "equal", share / (1 + share)), embeddings, labels)
    np.testing.assert_allclose(head.weight.numpy(), balanced.coef_, atol=1e-10)
    np.testing.assert_allclose(head.bias.numpy(), balanced.intercept_, atol=1e-10)


def test_means_predict_the_nearest_centroid():
    embeddings, labels = drawn(UNEVEN)
    head = fitted(ClosedForm("means"), embeddings, labels)
    theirs = NearestCentroid().fit(embeddings, labels)
    points = np.random.default_rng(2).normal(size=(200, 5))
    predicted = head(torch.from_numpy(points)).argmax(dim=1).numpy()
    assert np.array_equal(predicted, theirs.predict(points))
    alike = fitted(ClosedForm("lda", shrinkage=1.0), embeddings, labels)
    assert torch.equal(alike.weight, head.weight)


def test_oas_is_that_of_scikit_learn_on_centred_embeddings():
    embeddings, labels = drawn([6, 5, 3, 2])
    centred = (
        embeddings - np.stack([embeddings[labels == c].mean(axis=0) for c in range(4)])[labels]
    )
    _, amount = oas(centred, assume_centered=True)
    covariance = centred.T @ centred / len(labels)
    found = oas_shrinkage(covariance.trace(), (covariance**2).sum(), 5, len(labels))
    assert found == pytest.approx(amount, rel=1e-12)
    assert 0 < amount < 1
    chosen, given = (
        fitted(ClosedForm("lda", shrinkage=value), embeddings, labels) for value in ("oas", amount)
    )
    torch.testing.assert_close(chosen.weight, given.weight)
    assert oas_shrinkage(0.0, 0.0, 5, 10) == 1.0


@pytest.mark.parametrize("rule", ["lda", "ridge", "means"])
@pytest.mark.parametrize("task", list(Task))
def test_clients_together_have_the_classifier_of_the_pooled_data(rule, task):
    embeddings, labels = drawn([12, 9, 10, 4])
    if task is MULTILABEL:
        labels = np.eye(4)[labels]
        labels[::5, 1] = np.nan
    rows = torch.from_numpy(embeddings), torch.from_numpy(labels)
    parts = [[0, 1, 2], [3, 4, *range(20, 35)], list(range(5, 20))]
    clients = add_sums(sum_embeddings(*(part[rows_] for part in rows), 4, task) for rows_ in parts)
    central = sum_embeddings(*rows, 4, task)
    one, all_ = (ClosedForm(rule).fit(sums, task) for sums in (clients, central))
    torch.testing.assert_close(one.weight, all_.weight, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(one.bias, all_.bias, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rule", ["lda", "ridge", "means"])
def test_a_class_without_samples_never_wins_and_changes_no_other(rule):
    embeddings, labels = drawn([12, 0, 10, 4])
    head = fitted(ClosedForm(rule), embeddings, labels)
    assert head.known.tolist() == [True, False, True, True]
    points = torch.from_numpy(np.random.default_rng(3).normal(0, 1e4, size=(500, 5)))
    assert not (head(points).argmax(dim=1) == 1).any()
    rest = fitted(ClosedForm(rule), embeddings, np.array([0, 9, 1, 2])[labels], classes=3)
    assert torch.equal(head.weight[[0, 2, 3]], rest.weight)
    assert torch.equal(head.bias[[0, 2, 3]], rest.bias)


@pytest.mark.parametrize("rule", ["lda", "ridge", "means"])
def test_permuting_classes_permutes_rows(rule):
    embeddings, labels = drawn(UNEVEN)
    order = torch.tensor([2, 0, 3, 1])
    head = fitted(ClosedForm(rule), embeddings, labels)
    moved = fitted(ClosedForm(rule), embeddings, order.numpy()[labels])
    torch.testing.assert_close(moved.weight[order], head.weight)
    torch.testing.assert_close(moved.bias[order], head.bias)


@pytest.mark.parametrize("rule", ["lda", "ridge", "means"])
def test_samples_of_one_class_or_none_and_dead_features_are_defined(rule):
    form = ClosedForm(rule)
    embeddings, labels = drawn([7])
    head = fitted(form, embeddings, labels)
    assert (head(torch.from_numpy(embeddings)).argmax(dim=1) == 0).all()
    nothing = form.fit(sum_embeddings(torch.zeros(0, 5), torch.zeros(0), 4, MULTICLASS), MULTICLASS)
    assert not nothing.weight.any()
    assert not nothing.known.any()
    embeddings, labels = drawn(UNEVEN)
    dead = np.concatenate([np.full((len(labels), 1), 3.0), embeddings, 0 * embeddings], axis=1)
    head = fitted(ClosedForm(rule, shrinkage=0.0), dead, labels)
    plain = fitted(ClosedForm(rule, shrinkage=0.0), embeddings, labels)
    if rule != "means":  # its mean variance is over all features
        check_same_logits(head, dead, plain(torch.from_numpy(embeddings)).numpy())
    assert torch.isfinite(head.weight).all()


@pytest.mark.parametrize("shrinkage", [0.0, 0.2])
@pytest.mark.parametrize("prior", ["federation", "equal"])
def test_a_label_is_lda_of_its_two_cases(prior, shrinkage):
    embeddings, labels = drawn(UNEVEN)
    rows = np.stack([labels % 2, labels > 1], axis=1).astype(float)
    head = fitted(ClosedForm("lda", prior, shrinkage), embeddings, rows, 2, MULTILABEL)
    logits = head(torch.from_numpy(embeddings)).numpy()
    for label in range(2):
        theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage or None)
        theirs.fit(embeddings, rows[:, label])
        offset = 0 if prior == "federation" else np.log(theirs.priors_[1] / theirs.priors_[0])
        expected = theirs.decision_function(embeddings) - offset
        np.testing.assert_allclose(logits[:, label], expected, rtol=1e-8)


@pytest.mark.parametrize("shrinkage", [0.0, 0.2])
def test_a_label_by_ridge_is_scikit_learns(shrinkage):
    embeddings, labels = drawn(UNEVEN)
    rows = np.stack([labels % 2, labels > 1], axis=1).astype(float)
    alpha = len(labels) * shrinkage / (1 - shrinkage) * np.cov(embeddings.T, bias=True).trace() / 5
    head = fitted(ClosedForm("ridge", "federation", shrinkage), embeddings, rows, 2, MULTILABEL)
    theirs = RidgeClassifier(alpha=alpha, solver="svd").fit(embeddings, rows)
    np.testing.assert_allclose(head.weight.numpy(), theirs.coef_, rtol=1e-8)
    np.testing.assert_allclose(head.bias.numpy(), theirs.intercept_, rtol=1e-8)


def test_a_label_of_one_kind_is_settled_and_unknown_labels_keep_the_others_finite():
    embeddings, labels = drawn(UNEVEN)
    rows = np.stack([labels * 0, labels * 0 + 1, labels % 2, labels * np.nan], axis=1)
    rows[10:80, 2] = np.nan
    for rule in ("lda", "ridge", "means"):
        head = fitted(ClosedForm(rule, shrinkage=0.0), embeddings, rows, 4, MULTILABEL)
        assert head.known.tolist() == [False, False, True, False]
        logits = head(torch.from_numpy(embeddings))
        assert (logits[:, 0] == -1e4).all()
        assert (logits[:, 1] == 1e4).all()
        assert (logits[:, 3] == 0).all()
        assert torch.isfinite(logits).all()
        assert logits[:, 2].abs().max() < 1e4


def test_equal_priors_raise_the_recall_of_rare_classes():
    embeddings, labels = drawn([400, 12, 40, 5])
    recall = {}
    for prior in ("federation", "equal"):
        head = fitted(ClosedForm("lda", prior), embeddings, labels)
        predicted = head(torch.from_numpy(embeddings)).argmax(dim=1).numpy()
        recall[prior] = np.mean([(predicted == c)[labels == c].mean() for c in range(4)])
    assert recall["equal"] > recall["federation"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "qda"}, "rule must be one of lda, ridge, means, not 'qda'"),
        ({"prior": "uniform"}, "prior must be one of equal, federation"),
        ({"shrinkage": 1.5}, r"shrinkage must be in \[0, 1\] for rule lda, not 1.5"),
        ({"shrinkage": "auto"}, 'shrinkage must be a number or "oas"'),
        ({"rule": "ridge", "shrinkage": 1.0}, r"shrinkage must be in \[0, 0.99\] for rule ridge"),
    ],
)
def test_a_bad_value_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ClosedForm(**options)
