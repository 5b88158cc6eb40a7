"""CCVR: moments of clients are those of the pooled data; features follow them."""

import numpy as np
import pytest
import torch

from fedbb.methods.ccvr import (
    ClassMoments,
    class_moments,
    draw_features,
    moment_shapes,
)


def joined(*parts: ClassMoments) -> ClassMoments:
    names = parts[0].tensors()
    return ClassMoments.from_tensors({n: sum(part.tensors()[n] for part in parts) for n in names})


def test_two_clients_worked_by_hand():
    one = class_moments(torch.tensor([[1.0, 0], [3, 2]]), torch.tensor([0, 0]), 2)
    two = class_moments(torch.tensor([[2.0, 2]]), torch.tensor([0]), 2)
    mean, covariance = joined(one, two).gaussian(0)
    assert mean.tolist() == pytest.approx([2, 4 / 3])
    assert covariance.flatten().tolist() == pytest.approx([1, 1, 1, 4 / 3])


@pytest.mark.parametrize("diagonal", [False, True])
def test_moments_of_clients_are_those_of_the_pooled_data(diagonal):
    rng = np.random.default_rng(0)
    embeddings, labels = torch.from_numpy(rng.normal(3, 2, (40, 3))), rng.integers(0, 2, 40)
    parts = [
        class_moments(embeddings[rows], torch.from_numpy(labels[rows]), 3, diagonal)
        for rows in (slice(0, 9), slice(9, 10), slice(10, 40))
    ]
    found = joined(*parts)
    assert {name: tuple(t.shape) for name, t in found.tensors().items()} == moment_shapes(
        3, 3, diagonal
    )
    for label in range(2):
        mean, covariance = found.gaussian(label)
        pooled = np.cov(embeddings[labels == label].T)
        expected = pooled.diagonal() if diagonal else pooled
        np.testing.assert_allclose(covariance.numpy(), expected, rtol=1e-9)
        np.testing.assert_allclose(mean, embeddings[labels == label].mean(dim=0), rtol=1e-9)


@pytest.mark.parametrize("diagonal", [False, True])
def test_features_have_the_moments_of_their_class_and_classes_without_samples_have_none(diagonal):
    rng = np.random.default_rng(1)
    mixed = rng.normal(size=(500, 2)) @ [[2.0, 1.0], [0.0, 0.5]] + [5, -1]
    embeddings = torch.from_numpy(np.concatenate([mixed, [[7.0, 7.0]]]))
    labels = torch.tensor([0] * 500 + [2])
    moments = class_moments(embeddings, labels, 3, diagonal)
    features, classes = draw_features(moments, 4000, np.random.default_rng(2))
    assert classes.bincount().tolist() == [4000, 0, 4000]
    np.testing.assert_allclose(features[:4000].mean(dim=0), mixed.mean(axis=0), atol=0.1)
    covariance = np.cov(mixed.T)
    expected = np.diag(np.diag(covariance)) if diagonal else covariance
    np.testing.assert_allclose(np.cov(features[:4000].T), expected, atol=0.25)
    assert (features[4000:] == 7).all()  # one sample has no covariance
    again, _ = draw_features(moments, 4000, np.random.default_rng(2))
    assert torch.equal(features, again)


def test_no_samples_give_no_features():
    nothing = class_moments(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), 2)
    features, classes = draw_features(nothing, 5, np.random.default_rng(0))
    assert features.shape == (0, 3)
    assert len(classes) == 0
