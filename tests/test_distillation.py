"""Learning from outputs on public inputs: the published values of distances, and their laws."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.distillation import Distillation, divergence, divergence_from_logits
from fedbb.records import Task

TEACHERS = torch.tensor([[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
STUDENT = torch.tensor([[0.5, 0.5, 0.0]], dtype=torch.float64)
MEAN = TEACHERS.mean(dim=0, keepdim=True)
MULTI = Task.MULTICLASS


def loss(target=MEAN, task=MULTI, student=STUDENT, **options):
    return Distillation(**options).loss(student, target, task)


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"distance": "mae"}, 0.33333333),
        ({"distance": "mse"}, 0.16666667),
        ({"distance": "kl"}, 0.06618835),
        ({"distance": "kl", "temperature": 2.0}, 0.01916610),  # without the factor T²
    ],
)
def test_distances_to_mean_logits_have_the_values_worked_out_by_hand(options, value):
    assert loss(**options).item() == pytest.approx(value, abs=1e-8)


def test_the_gradient_is_the_difference_of_probabilities():
    student = STUDENT.clone().requires_grad_()
    loss(student=student).backward()
    assert student.grad[0].tolist() == pytest.approx(
        [-0.16289766, 0.05215277, 0.11074489], abs=1e-8
    )


def test_mean_probabilities_and_unequal_weights():
    shares = TEACHERS.softmax(dim=1).mean(dim=0, keepdim=True)
    assert shares[0].tolist() == pytest.approx([0.52786815, 0.34515604, 0.12697581], abs=1e-8)
    assert loss(shares, outputs="probabilities").item() == pytest.approx(0.05503825, abs=1e-8)
    weighted = torch.tensor([[0.75, 0.25]], dtype=torch.float64) @ TEACHERS
    assert loss(weighted).item() == pytest.approx(0.23753638, abs=1e-8)


def test_multi_label_outputs_are_bernoulli_distributions():
    wanted, found = (torch.tensor([row], dtype=torch.float64) for row in ([1, -2], [0, -1]))
    value = divergence_from_logits(found, wanted, Task.MULTILABEL)
    assert value.item() == pytest.approx(0.08903741, abs=1e-8)
    again = divergence(found, wanted.sigmoid(), Task.MULTILABEL)
    assert again.item() == pytest.approx(value.item(), abs=1e-12)


@given(
    st.lists(st.floats(-20, 20), min_size=3, max_size=3),
    st.lists(st.floats(-20, 20), min_size=3, max_size=3),
    st.sampled_from(Task),
    st.sampled_from(["kl", "mae", "mse"]),
    st.sampled_from(["logits", "probabilities"]),
)
def test_a_distance_is_zero_for_equal_outputs_and_never_below(one, two, task, distance, outputs):
    spec = Distillation(distance=distance, outputs=outputs)
    one, two = (torch.tensor([row], dtype=torch.float64) for row in (one, two))
    assert spec.loss(one, spec.table(two, task), task).item() >= -1e-9
    assert spec.loss(one, spec.table(one, task), task).item() == pytest.approx(0, abs=1e-9)


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=3), st.floats(0.05, 0.95))
def test_the_sum_of_divergences_has_the_gradient_of_the_divergence_from_the_mean(row, share):
    """RHFL: a client needs the weighted mean of the others' tables, not the tables."""
    tables = TEACHERS.softmax(dim=1)
    weights = torch.tensor([share, 1 - share], dtype=torch.float64)
    gradients = []
    for sum_of_all in (True, False):
        logits = torch.tensor([row], dtype=torch.float64, requires_grad=True)
        if sum_of_all:
            each = [divergence(logits, table[None], MULTI) for table in tables]
            (weights[0] * each[0] + weights[1] * each[1]).backward()
        else:
            divergence(logits, weights[None] @ tables, MULTI).backward()
        gradients.append(logits.grad)
    assert torch.allclose(*gradients, atol=1e-12)


def test_the_learning_rate_falls_along_a_cosine():
    spec = Distillation(lr=2.0, cosine=True)
    assert [spec.lr_at(step, 4) for step in range(4)] == pytest.approx(
        [2, 1 + math.sqrt(0.5), 1, 1 - math.sqrt(0.5)]
    )
    assert replace(spec, cosine=False).lr_at(3, 4) == 2.0


@pytest.mark.parametrize(
    ("options", "public", "steps"),
    [
        ({"epochs": 2, "batch_size": 4}, 10, 6),
        ({"epochs": 2, "batch_size": 4, "mode": "train"}, 10, 4),
        ({"epochs": 1, "batch_size": 40, "mode": "train"}, 10, 1),
        ({"steps": 7}, 10, 7),
        ({"epochs": 0}, 10, 0),
    ],
)
def test_the_number_of_steps(options, public, steps):
    assert Distillation(**options).steps_over(public) == steps


@pytest.mark.parametrize(
    "options",
    [
        {"taught": "both"},
        {"outputs": "labels"},
        {"distance": "cosine"},
        {"mode": "half"},
        {"epochs": -1},
        {"steps": -1},
        {"batch_size": 0},
        {"lr": 0.0},
        {"temperature": math.inf},
        {"clip": -1.0},
    ],
)
def test_a_bad_value_is_refused_by_its_name(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Distillation(**options)
