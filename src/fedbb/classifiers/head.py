"""The classifier of a network as a linear head: taken from a model, put back, blended."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedbb.classifiers.sums import EmbeddingSums
from fedbb.models.base import classifier_parameters, run_network
from fedbb.records import ModelFacts, ModelState, Task


@dataclass(frozen=True, eq=False)
class Head:
    """Logits W·h + b of an embedding h.

    Args:
        weight: W, (C, D).
        bias: b, (C,).
        known: (C,), which classes the data it was fitted to has; all of them if None.
    """

    weight: Tensor
    bias: Tensor
    known: Tensor | None = None

    def __call__(self, embeddings: Tensor) -> Tensor:
        """Return the logits (N, C) of embeddings (N, D)."""
        return embeddings.to(self.weight) @ self.weight.T + self.bias

    def scaled(self, factor: Tensor) -> Head:
        """Return the head with its logits times a factor, () or (C,)."""
        column = factor.unsqueeze(-1) if factor.ndim else factor
        return replace(self, weight=self.weight * column, bias=self.bias * factor)


def embed(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return the embeddings of a batch, on the CPU."""
    outputs = run_network(model, inputs, embed=True)
    assert outputs.embedding is not None  # asked for
    return outputs.embedding.cpu()


def head_width(model: ModelState, facts: ModelFacts) -> int:
    """Return the width of the embedding, from the state of a model with a linear classifier."""
    return int(model.params[classifier_parameters(str(facts.classifier))[0]].shape[1])


def read_head(state: ModelState, classifier: str) -> Head:
    """Return the classifier of this name from a model's state, in float64."""
    weight, bias = (state.params[name].double() for name in classifier_parameters(classifier))
    return Head(weight, bias)


def place_head(state: ModelState, classifier: str, head: Head) -> ModelState:
    """Return the state with another classifier, in the types of the one it had."""
    parts = zip(classifier_parameters(classifier), (head.weight, head.bias), strict=True)
    placed = {name: tensor.to(state.params[name].dtype) for name, tensor in parts}
    return ModelState({**state.params, **placed}, state.buffers)


def blend_heads(trained: Head, fitted: Head, sums: EmbeddingSums, share: float, task: Task) -> Head:
    """Return one head between a trained and a fitted one, at the scale of the trained one.

    The fitted logits are first scaled to the standard deviation that the trained ones have over
    the samples of the sums. Of multi-class logits only differences between classes matter, so the
    mean over the classes is taken off before; the labels of multi-label data are scaled one by one.
    A class that the fitted head does not know keeps its trained row.

    Args:
        trained: the classifier as trained.
        fitted: the classifier in closed form.
        sums: the statistics it was fitted to.
        share: of the fitted head, from 0, which is the trained head itself, to 1.
        task: multi-class or multi-label.
    """
    if share == 0.0:
        return trained
    known = torch.ones(len(fitted.bias), dtype=torch.bool) if fitted.known is None else fitted.known
    if not known.any():
        return trained
    if task is Task.MULTICLASS:
        trained, fitted = _centred(trained, known), _centred(fitted, known)
    covariance = sums.covariance()
    target, own = (_spread(head, covariance, known, task) for head in (trained, fitted))
    usable = (target > 0) & (own > 0)
    factor = torch.where(usable, target / torch.where(usable, own, 1.0), 1.0)
    near = fitted.scaled(factor)
    weight = (1 - share) * trained.weight + share * near.weight
    bias = (1 - share) * trained.bias + share * near.bias
    return Head(
        torch.where(known.unsqueeze(1), weight, trained.weight),
        torch.where(known, bias, trained.bias),
    )


def limit_norm(head: Head, trained: Head) -> Head:
    """Return the head with its logits scaled down until its weights are as small as the trained.

    A closed form weighs directions in which embeddings vary little, so at the same spread of its
    logits it has larger weights, and with them larger gradients of the embeddings. Trained on from
    it, the weights would grow by a factor in every round.

    Args:
        head: the head to train on from.
        trained: the head whose norm it must not exceed.
    """
    norm, most = head.weight.norm(), trained.weight.norm()
    return head if norm <= most else head.scaled(most / norm)


def _centred(head: Head, known: Tensor) -> Head:
    """Take the mean logit of the known classes off all logits, which changes no softmax."""
    weight = head.weight - head.weight[known].mean(dim=0)
    return replace(head, weight=weight, bias=head.bias - head.bias[known].mean())


def _spread(head: Head, covariance: Tensor, known: Tensor, task: Task) -> Tensor:
    """Return the standard deviation of the logits over the samples: one, or one for each label."""
    variance = ((head.weight @ covariance) * head.weight).sum(dim=1).clamp(min=0)
    return variance.sqrt() if task is Task.MULTILABEL else variance[known].mean().sqrt()
