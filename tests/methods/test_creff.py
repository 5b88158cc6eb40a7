"""CReFF and CLIP2FL at the server: published numbers, autograd, and literal forms."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from fedbb.classifiers.head import Head
from fedbb.methods.creff import (
    ClassGradients,
    contrast_gradient,
    feature_gradients,
    matching_distance,
    matching_gradient,
    prototype_contrast,
    sum_gradients,
)

HEAD = Head(torch.eye(2).double(), torch.zeros(2).double())
FEATURES = torch.tensor([[[1, 1], [0.5, 0]], [[-1, 1], [0, 0.2]]], dtype=torch.float64)


def mean_gradients(embeddings: list[list[float]], label: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.tensor(embeddings, dtype=torch.float64)
    found = sum_gradients(rows, torch.full((len(rows),), label), HEAD)
    return found.weight[label] / len(rows), found.bias[label] / len(rows)


def wanted() -> ClassGradients:
    """Two clients: A has class 0 {(1,0),(0,1)} and class 1 {(0,2)}, B has class 0 {(2,0)}."""
    a0, b0 = mean_gradients([[1, 0], [0, 1]], 0), mean_gradients([[2, 0]], 0)
    a1 = mean_gradients([[0, 2]], 1)
    return ClassGradients(
        torch.stack([(a0[0] + b0[0]) / 2, a1[0]]), torch.stack([(a0[1] + b0[1]) / 2, a1[1]])
    )


def test_gradients_of_clients_have_the_published_values():
    weight, bias = mean_gradients([[1, 0], [0, 1]], 0)
    assert weight[0].tolist() == pytest.approx([-0.134470711, -0.365529289], abs=1e-9)
    assert bias.tolist() == pytest.approx([-0.5, 0.5])
    target = wanted()
    assert target.weight[0, 0].tolist() == pytest.approx([-0.186438277, -0.182764645], abs=1e-9)
    assert target.weight[1].flatten().tolist() == pytest.approx(
        [0, 0.238405844, 0, -0.238405844], abs=1e-9
    )
    assert target.bias[:, 0].tolist() == pytest.approx([-0.309601461, 0.119202922], abs=1e-9)


def test_distance_and_gradient_have_the_published_values_and_a_step_lowers_it():
    target = wanted()
    found, _ = feature_gradients(FEATURES, HEAD)
    assert matching_distance(found, target).tolist() == pytest.approx(
        [0.021747111, 0.262300426], abs=1e-9
    )
    gradient = matching_gradient(FEATURES, HEAD, target)
    assert gradient.flatten().tolist() == pytest.approx(
        [
            *(0.120610740, -0.158930058, 0.052762878, -0.081697080),
            *(-0.264444818, -0.403947224, -1.708722373, -0.815438685),
        ],
        abs=1e-8,
    )
    after, _ = feature_gradients(FEATURES - 0.1 * gradient, HEAD)
    assert matching_distance(after, target).tolist() == pytest.approx(
        [0.017103981, 0.017474173], abs=1e-8
    )


def test_gradient_of_the_head_is_that_of_autograd():
    rng = np.random.default_rng(0)
    embeddings, labels = torch.from_numpy(rng.normal(size=(9, 4))), torch.tensor([0, 1, 2] * 3)
    weight, bias = (torch.from_numpy(rng.normal(size=s)).requires_grad_() for s in ((3, 4), (3,)))
    found = sum_gradients(embeddings, labels, Head(weight.detach(), bias.detach()))
    for label in range(3):
        rows = labels == label
        loss = F.cross_entropy(embeddings[rows] @ weight.T + bias, labels[rows], reduction="sum")
        by_weight, by_bias = torch.autograd.grad(loss, (weight, bias))
        torch.testing.assert_close(found.weight[label], by_weight)
        torch.testing.assert_close(found.bias[label], by_bias)
    torch.testing.assert_close(found.bias.sum(dim=1), torch.zeros(3).double(), atol=1e-12, rtol=0)


@given(seed=st.integers(0, 50), classes=st.integers(2, 4), number=st.integers(2, 4))
def test_gradients_by_features_are_those_of_autograd(seed, classes, number):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: torch.from_numpy(rng.normal(size=shape))  # noqa: E731
    features = draw(classes, number, 3).requires_grad_()
    head = Head(draw(classes, 3), draw(classes))
    target = ClassGradients(draw(classes, classes, 3), draw(classes, classes))
    distance = matching_distance(feature_gradients(features, head)[0], target).sum()
    (expected,) = torch.autograd.grad(distance, features)
    found = matching_gradient(features.detach(), head, target)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)
    prototypes = draw(classes, 3)
    (expected,) = torch.autograd.grad(prototype_contrast(features, prototypes, 0.3), features)
    found = contrast_gradient(features.detach(), prototypes, 0.3)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


@given(seed=st.integers(0, 50), classes=st.integers(2, 4), number=st.integers(2, 4))
def test_contrast_is_the_literal_one_over_repeated_prototypes(seed, classes, number):
    rng = np.random.default_rng(seed)
    features = torch.from_numpy(rng.normal(size=(classes, number, 3)))
    prototypes = torch.from_numpy(rng.normal(size=(classes, 3)))
    labels = torch.arange(classes).repeat_interleave(number)
    logits = features.flatten(0, 1) @ prototypes[labels].T / 0.5
    values = []
    for place in range(classes * number):
        others = torch.arange(classes * number) != place
        log_shares = logits[place] - logits[place][others].logsumexp(dim=0)
        values.append(-log_shares[others & (labels == labels[place])].mean())
    torch.testing.assert_close(
        prototype_contrast(features, prototypes, 0.5), torch.stack(values).mean()
    )


def test_contrast_has_the_published_value():
    found = prototype_contrast(FEATURES, torch.eye(2).double(), 0.1)
    assert found.item() == pytest.approx(0.337885740, abs=1e-9)
    with pytest.raises(ValueError, match="at least two features"):
        prototype_contrast(FEATURES[:, :1], torch.eye(2).double(), 0.1)


def test_permuting_classes_permutes_the_gradient():
    rng = np.random.default_rng(3)
    draw = lambda *shape: torch.from_numpy(rng.normal(size=shape))  # noqa: E731
    features, head = draw(3, 4, 5), Head(draw(3, 5), draw(3))
    target = ClassGradients(draw(3, 3, 5), draw(3, 3))
    order = torch.tensor([2, 0, 1])
    moved = matching_gradient(
        features[order],
        Head(head.weight[order], head.bias[order]),
        ClassGradients(target.weight[order][:, order], target.bias[order][:, order]),
    )
    torch.testing.assert_close(moved, matching_gradient(features, head, target)[order])
