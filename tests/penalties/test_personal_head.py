"""Fed-ROD's personal head: published numbers, nothing of it reaches the shared model."""

import pytest
import torch
from torch import nn

from fedbb.models.base import Outputs
from fedbb.penalties.base import Anchors, LocalResult, Step
from fedbb.penalties.personal_head import PersonalHead, personal_logits
from fedbb.state import snapshot

NETWORK = nn.Linear(2, 2)


def bound(**options):
    kept = options.pop("kept", {})
    spec = PersonalHead(**options)
    return spec.bind(Anchors(NETWORK, snapshot(NETWORK), None, kept=kept))


def step(logits, embedding, targets):
    return Step(torch.zeros(1), Outputs(logits, embedding), 0.0, targets)


def test_a_step_from_zeros_has_the_published_values():
    """Shared logits (1, .5), embedding (1, 2), class 1, and a plain step of 0.1."""
    penalty = bound()
    logits = torch.tensor([[1.0, 0.5]], requires_grad=True)
    embedding = torch.tensor([[1.0, 2.0]], requires_grad=True)
    value = penalty.value(step(logits, embedding, torch.tensor([1])))
    assert value.item() == pytest.approx(0.974076984, abs=1e-6)
    value.backward()
    assert logits.grad is None
    assert embedding.grad is None
    head = penalty.module
    assert head.weight.grad[0].tolist() == pytest.approx([0.622459331, 1.244918662])
    assert head.bias.grad.tolist() == pytest.approx([0.622459331, -0.622459331])
    with torch.no_grad():
        for parameter in head.parameters():
            parameter -= 0.1 * parameter.grad
    after = personal_logits(head, logits, embedding)
    assert after[0].tolist() == pytest.approx([0.626524401, 0.873475599])
    again = penalty.value(step(logits, embedding, torch.tensor([1])))
    assert again.item() == pytest.approx(0.577275401, abs=1e-6)
    kept = penalty.keep(LocalResult(snapshot(NETWORK), snapshot(NETWORK), 1.0, 0.1))
    assert torch.equal(bound(kept=kept).module.weight, head.weight)


def test_it_begins_with_zeros_or_a_copy_of_the_classifier():
    assert not bound().module.weight.any()
    assert torch.equal(bound(start="copy").module.weight, NETWORK.weight)
    with pytest.raises(ValueError, match="start must be one of zeros, copy"):
        PersonalHead("random")


def test_labels_are_scored_where_they_are_known():
    logits, embedding = torch.tensor([[1.0, 3.0]]), torch.zeros(1, 2)
    nan = float("nan")
    value = bound().value(step(logits, embedding, torch.tensor([[1.0, nan]])))
    assert value.item() == pytest.approx(nn.functional.softplus(torch.tensor(-1.0)).item())
    assert bound().value(step(logits, embedding, torch.tensor([[nan, nan]]))).item() == 0
