"""Linear heads: read from a model, put back, and blended at one scale."""

import numpy as np
import pytest
import torch
from torch import nn

from fedbb.classifiers.head import Head, blend_heads, limit_norm, place_head, read_head
from fedbb.classifiers.sums import sum_embeddings
from fedbb.errors import RecipeError
from fedbb.models.base import linear_classifier, run_network
from fedbb.models.registry import MODELS, build_model
from fedbb.records import Task
from fedbb.state import restore, snapshot

MULTICLASS, MULTILABEL = Task


def setting(task: Task = MULTICLASS):
    rng = np.random.default_rng(0)
    embeddings = torch.from_numpy(rng.normal(1, 2, (60, 4)))
    labels = torch.from_numpy(rng.integers(0, 3, 60))
    if task is MULTILABEL:
        labels = nn.functional.one_hot(labels, 3).double()
    trained, fitted = (
        Head(
            torch.from_numpy(rng.normal(0, size, (3, 4))), torch.from_numpy(rng.normal(0, size, 3))
        )
        for size in (1.0, 50.0)
    )
    return embeddings, sum_embeddings(embeddings, labels, 3, task), trained, fitted


def spread(logits: torch.Tensor, task: Task) -> torch.Tensor:
    if task is MULTILABEL:
        return logits.std(dim=0, correction=0)
    centred = logits - logits.mean(dim=1, keepdim=True)
    return centred.var(dim=0, correction=0).mean().sqrt()


@pytest.mark.parametrize("task", list(Task))
def test_no_share_is_the_trained_head_itself(task):
    _, sums, trained, fitted = setting(task)
    assert blend_heads(trained, fitted, sums, 0.0, task) is trained


def test_the_whole_share_predicts_as_the_fitted_head_with_the_spread_of_the_trained_one():
    embeddings, sums, trained, fitted = setting()
    blended = blend_heads(trained, fitted, sums, 1.0, MULTICLASS)(embeddings)
    own = fitted(embeddings)
    assert torch.equal(blended.argmax(dim=1), own.argmax(dim=1))
    torch.testing.assert_close(spread(blended, MULTICLASS), spread(trained(embeddings), MULTICLASS))


def test_labels_are_scaled_one_by_one():
    embeddings, sums, trained, fitted = setting(MULTILABEL)
    blended = blend_heads(trained, fitted, sums, 1.0, MULTILABEL)(embeddings)
    torch.testing.assert_close(spread(blended, MULTILABEL), spread(trained(embeddings), MULTILABEL))
    torch.testing.assert_close(
        blended / fitted(embeddings), (blended / fitted(embeddings))[:1].expand(60, 3)
    )


@pytest.mark.parametrize("task", list(Task))
def test_a_blend_is_linear_in_its_share_and_ignores_the_scale_of_the_fitted_head(task):
    _, sums, trained, fitted = setting(task)
    low, middle, high = (blend_heads(trained, fitted, sums, b, task) for b in (1e-9, 0.5, 1.0))
    torch.testing.assert_close(middle.weight, (low.weight + high.weight) / 2)
    torch.testing.assert_close(middle.bias, (low.bias + high.bias) / 2)
    scaled = fitted.scaled(torch.tensor(7.0, dtype=torch.float64))
    torch.testing.assert_close(blend_heads(trained, scaled, sums, 0.5, task).weight, middle.weight)


@pytest.mark.parametrize("task", list(Task))
def test_a_class_unknown_to_the_fitted_head_keeps_its_trained_logits(task):
    embeddings, sums, trained, fitted = setting(task)
    known = torch.tensor([True, False, True])
    fitted = Head(fitted.weight, fitted.bias - 1e4 * ~known, known)
    blended = blend_heads(trained, fitted, sums, 1.0, task)(embeddings)
    as_trained = trained(embeddings)
    if task is MULTICLASS:  # up to what is taken off all classes
        as_trained = as_trained - as_trained[:, known].mean(dim=1, keepdim=True)
    torch.testing.assert_close(blended[:, 1], as_trained[:, 1])
    nobody = Head(fitted.weight, fitted.bias, torch.zeros(3, dtype=torch.bool))
    assert blend_heads(trained, nobody, sums, 1.0, task) is trained


def test_a_trained_head_of_zeros_takes_the_fitted_one_as_it_is():
    _, sums, trained, fitted = setting()
    zeros = Head(torch.zeros_like(trained.weight), torch.zeros_like(trained.bias))
    blended = blend_heads(zeros, fitted, sums, 1.0, MULTICLASS)
    torch.testing.assert_close(blended.weight, fitted.weight - fitted.weight.mean(dim=0))


def test_a_head_to_train_on_from_is_no_larger_than_the_trained_one():
    embeddings, sums, trained, fitted = setting()
    blended = blend_heads(trained, fitted, sums, 1.0, MULTICLASS)
    for factor in (0.1, 1.0, 10.0):
        given = blended.scaled(torch.tensor(factor, dtype=torch.float64))
        limited = limit_norm(given, trained)
        norm, most = given.weight.norm(), trained.weight.norm()
        torch.testing.assert_close(limited.weight.norm(), torch.minimum(norm, most))
        assert torch.equal(limited(embeddings).argmax(dim=1), given(embeddings).argmax(dim=1))
    small = trained.scaled(torch.tensor(0.5, dtype=torch.float64))
    assert limit_norm(small, trained) is small


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("projection", [False, True])
def test_the_classifier_of_every_network_is_linear_in_its_embedding(name, projection):
    network = build_model(name, 5, (3, 32, 32), projection=projection).eval()
    classifier = linear_classifier(network, 5)
    state = snapshot(network)
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        outputs = run_network(network, images, embed=True)
        logits = read_head(state, classifier)(outputs.embedding)
        torch.testing.assert_close(logits.float(), outputs.logits, rtol=1e-4, atol=1e-5)
        other = Head(torch.zeros(5, outputs.embedding.shape[1]).double(), torch.arange(5).double())
        placed = place_head(state, classifier, other)
        restore(network, placed)
        assert network(images).logits.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert state.params[f"{classifier}.bias"].tolist() != [0, 1, 2, 3, 4]  # its own is kept


@pytest.mark.parametrize(
    ("network", "found"),
    [
        (nn.Conv2d(3, 3, 1), "none"),
        (nn.Sequential(nn.Linear(4, 3, bias=False)), "'0', Linear"),
        (nn.Sequential(nn.Linear(4, 7)), "'0', Linear"),
    ],
)
def test_a_network_without_a_linear_classifier_is_refused(network, found):
    with pytest.raises(RecipeError, match=f"one output for each class; that of .* is {found}"):
        linear_classifier(network, 3)
