"""Sums of embeddings: those of clients add up to those of the pooled data."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.classifiers.sums import EmbeddingSums, add_sums, sum_embeddings, sum_shapes
from fedbb.records import Task


def drawn(seed: int, samples: int, task: Task) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, samples)
    if task is Task.MULTILABEL:
        labels = rng.choice([0.0, 1.0, np.nan], size=(samples, 3))
    return torch.from_numpy(rng.normal(2, 3, (samples, 4))).float(), torch.from_numpy(labels)


def test_sums_of_three_samples_worked_by_hand():
    found = sum_embeddings(
        torch.tensor([[1.0, 2.0], [3.0, 0.0], [1.0, 1.0]]),
        torch.tensor([0, 2, 0]),
        3,
        Task.MULTICLASS,
    )
    assert found.counts.tolist() == [[2, 0, 1]]
    assert found.sums.tolist() == [[[2, 3], [0, 0], [3, 0]]]
    # Σ h₁², h₁h₂, h₁ · h₂², h₂ · 1
    assert found.outer.tolist() == [11, 3, 5, 5, 3, 3]
    assert found.samples == 3
    assert found.covariance().numpy() == pytest.approx(
        np.cov([[1, 3, 1], [2, 0, 1]], bias=True), abs=1e-12
    )


def test_an_unknown_label_is_no_case_but_its_sample_counts():
    found = sum_embeddings(
        torch.tensor([[1.0], [5.0]]), torch.tensor([[1, float("nan")], [0, 1]]), 2, Task.MULTILABEL
    )
    assert found.counts.tolist() == [[1, 1], [1, 0]]
    assert found.sums.tolist() == [[[1], [5]], [[5], [0]]]
    assert found.outer.tolist() == [26, 6, 2]


@pytest.mark.parametrize("task", list(Task))
@given(cuts=st.lists(st.integers(0, 40), max_size=4), seed=st.integers(0, 9))
def test_sums_of_clients_are_those_of_the_pooled_data(task, cuts, seed):
    embeddings, labels = drawn(seed, 40, task)
    edges = [0, *sorted(cuts), 40]
    parts = [
        sum_embeddings(embeddings[a:b], labels[a:b], 3, task) for a, b in itertools.pairwise(edges)
    ]
    pooled = sum_embeddings(embeddings, labels, 3, task).tensors()
    for name, tensor in add_sums(parts).tensors().items():
        assert tensor.dtype is torch.float64
        torch.testing.assert_close(tensor, pooled[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("task", list(Task))
def test_shapes_are_known_beforehand(task):
    found = sum_embeddings(*drawn(0, 5, task), 3, task).tensors()
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == sum_shapes(3, 4, task)


def test_adding_leaves_the_parts_as_they_are():
    part = sum_embeddings(*drawn(0, 5, Task.MULTICLASS), 3, Task.MULTICLASS)
    before = part.outer.clone()
    twice = add_sums([part, part])
    assert torch.equal(part.outer, before)
    assert torch.equal(twice.outer, 2 * before)
    assert torch.equal(EmbeddingSums.from_tensors(twice.tensors()).counts, 2 * part.counts)
