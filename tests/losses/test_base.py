from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from fedbb.errors import RecipeError
from fedbb.losses.base import OwnLoss, as_loss, check_loss
from fedbb.losses.pnb import PNB, PNBLoss
from fedbb.records import LabelCounts, Task

COUNTS = LabelCounts(np.array([3.0, 1.0]), np.array([1.0, 3.0]), samples=4)


@dataclass(frozen=True)
class Bare:
    """A spec with no more than it must have."""

    def bind(self, counts, task):
        return nn.CrossEntropyLoss(torch.tensor(counts.positive).float())


class OneTask(Bare):
    def supports(self, task):
        return task is Task.MULTICLASS


def test_a_whole_spec_is_taken_as_it_is():
    spec = PNB(beta=0.9)
    assert as_loss(spec) is spec


@pytest.mark.parametrize(
    "source", [nn.CrossEntropyLoss(), Bare(), lambda counts: PNBLoss(counts.positive)]
)
def test_whatever_is_less_than_a_spec_has_the_defaults_of_a_plain_loss(source):
    loss = as_loss(source)
    module = loss.bind(COUNTS, Task.MULTICLASS)
    assert module(torch.zeros(2, 2), torch.tensor([0, 1])).item() > 0
    assert loss.supports(Task.MULTILABEL)
    assert loss.mean_weight(COUNTS, Task.MULTICLASS) == 1.0
    assert loss.mean_weights(np.ones((2, 2)), np.ones((2, 2)), Task.MULTICLASS).tolist() == [1, 1]
    assert loss.diagnostics(COUNTS, Task.MULTICLASS) == []


def test_what_a_spec_says_is_kept():
    loss = as_loss(OneTask())
    assert loss.supports(Task.MULTICLASS)
    assert not loss.supports(Task.MULTILABEL)


def test_clients_do_not_share_a_module():
    module = nn.CrossEntropyLoss(torch.ones(2))
    bound = as_loss(module).bind(COUNTS, Task.MULTICLASS)
    bound.weight.zero_()
    assert module.weight.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("focal", "nn.Module, a function of label counts"),
        (nn.CrossEntropyLoss, r"give an instance, as in CrossEntropyLoss\(\)"),
        (PNB, r"PNB\(\)"),
    ],
)
def test_something_else_is_refused(wrong, words):
    with pytest.raises(RecipeError, match=words):
        as_loss(wrong)


def test_a_function_must_return_a_module():
    with pytest.raises(RecipeError, match=r"not an nn\.Module"):
        OwnLoss(lambda counts: 3).bind(COUNTS, Task.MULTICLASS)


def test_a_function_that_fails_is_named():
    with pytest.raises(RecipeError, match=r"cannot be made from the label counts.*TypeError"):
        OwnLoss(lambda: nn.CrossEntropyLoss()).bind(COUNTS, Task.MULTICLASS)


class Detached(nn.Module):
    def forward(self, logits, targets):
        return logits.detach().sum()


@pytest.mark.parametrize(
    ("module", "task", "words"),
    [
        (nn.MSELoss(), Task.MULTICLASS, r"MSELoss cannot take logits \(N, C\) and class numbers"),
        (nn.CTCLoss(), Task.MULTILABEL, r"CTCLoss cannot take logits \(N, C\) and labels"),
        (nn.CrossEntropyLoss(reduction="none"), Task.MULTICLASS, r"returns \(2,\); it must return"),
        (Detached(), Task.MULTICLASS, "depends on the logits"),
    ],
)
def test_a_module_that_cannot_be_the_loss_is_refused(module, task, words):
    with pytest.raises(RecipeError, match=words):
        check_loss(as_loss(module), 3, task)


@pytest.mark.parametrize(
    ("module", "task"),
    [
        (nn.CrossEntropyLoss(label_smoothing=0.1), Task.MULTICLASS),
        (nn.BCEWithLogitsLoss(), Task.MULTILABEL),
        (nn.MultiMarginLoss(), Task.MULTICLASS),
        (PNB(), Task.MULTICLASS),
    ],
)
def test_a_loss_of_torch_or_of_this_package_passes(module, task):
    check_loss(as_loss(module), 3, task)
