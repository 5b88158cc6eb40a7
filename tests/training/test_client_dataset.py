from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbb.data.dataset import Dataset
from fedbb.imbalance.counts import count_labels
from fedbb.training import client_dataset
from fedbb.training.client_dataset import ClientDataset, batches, make_client_datasets
from fedbb.training.config import LocalConfig, TrainJob
from helpers.toy import toy_dataset

DATASET = toy_dataset()
JOB = TrainJob(client=2, round=3, seed=0, state=None)
PLAIN = LocalConfig(batch_size=7, augment=False)


def epoch(samples=40, plan=PLAIN, job=JOB, number=0):
    return list(batches(ClientDataset(DATASET, np.arange(samples)), job, plan, number))


@given(st.integers(1, 60), st.integers(1, 70))
def test_every_sample_comes_once_an_epoch(samples, size):
    cut = epoch(samples, replace(PLAIN, batch_size=size))
    shown = torch.cat([images for images, _ in cut]).flatten(1)
    expected = torch.from_numpy(DATASET.train.inputs[:samples]).flatten(1)
    assert sorted(shown.tolist()) == sorted(expected.tolist())
    assert all(len(images) == size for images, _ in cut[:-1])


@pytest.mark.parametrize(("samples", "left"), [(40, 5), (5, 1), (35, 5), (36, 5)])
def test_drop_last_keeps_a_short_batch_that_is_the_only_one(samples, left):
    assert len(epoch(samples, replace(PLAIN, drop_last=True))) == left


def test_images_stay_with_their_labels():
    for images, targets in epoch():
        for image, target in zip(images, targets, strict=True):
            row = np.flatnonzero((DATASET.train.inputs == image.numpy()).all(axis=(1, 2, 3)))
            assert DATASET.train.labels[row] == target.item()


@pytest.mark.parametrize("change", [{"round": 4}, {"client": 1}, {"seed": 5}])
def test_the_order_depends_on_seed_round_and_client(change):
    targets = torch.cat([target for _, target in epoch()])
    others = torch.cat([target for _, target in epoch(job=replace(JOB, **change))])
    assert not torch.equal(targets, others)


def test_the_order_differs_between_epochs():
    first, second = (torch.cat([t for _, t in epoch(number=number)]) for number in (0, 1))
    assert not torch.equal(first, second)


def test_a_samples_augmentation_does_not_depend_on_the_batch_size():
    small, large = (
        torch.cat([images for images, _ in epoch(plan=LocalConfig(batch_size=size))])
        for size in (3, 40)
    )
    assert torch.equal(small, large)
    plain = torch.cat([images for images, _ in epoch()])
    assert not torch.equal(small, plain)


def test_labels_are_counted_once_for_all_clients(monkeypatch):
    calls = []
    for name in ("count_groups", "count_labels"):
        count = getattr(client_dataset, name)
        monkeypatch.setattr(
            client_dataset,
            name,
            lambda *args, name=name, count=count: calls.append(name) or count(*args),
        )
    clients = make_client_datasets(DATASET, [np.arange(10), np.arange(10, 40)])
    for client in (*clients, *clients):
        labels = DATASET.train.labels[client.indices]
        expected = count_labels(labels, DATASET.task, len(DATASET.classes))
        assert np.array_equal(client.counts.positive, expected.positive)
        assert np.array_equal(client.counts.negative, expected.negative)
        assert client.counts.samples == len(client)
    assert calls == ["count_groups"]
    alone = ClientDataset(DATASET, np.arange(10))
    assert alone.counts is alone.counts
    assert calls == ["count_groups", "count_labels"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (np.arange(20, dtype=np.int64).reshape(5, 4), torch.int64),
        (np.arange(20, dtype=np.int32).reshape(5, 4), torch.int32),
        (np.linspace(0, 1, 40).reshape(5, 2, 4), torch.float32),
        (np.arange(60, dtype=np.uint8).reshape(5, 1, 3, 2, 2), torch.float32),
        (np.arange(10).reshape(5, 2) % 3 == 0, torch.float32),
    ],
)
def test_batches_have_the_shape_and_type_of_the_inputs(given, shown):
    dataset = Dataset.from_arrays(given, np.arange(5), given, np.arange(5))
    ((inputs, targets),) = batches(ClientDataset(dataset, np.arange(5)), JOB, PLAIN, 0)
    assert inputs.dtype == shown
    assert inputs.shape == given.shape
    scale = 255 if given.dtype == np.uint8 else 1
    expected = torch.from_numpy(given / scale).to(shown)[targets]
    assert torch.equal(inputs, expected)


def test_batches_are_normalized_by_feature_if_asked():
    given = np.array([[0.0, 10.0], [2.0, 30.0], [4.0, 20.0]])
    dataset = Dataset.from_arrays(given, np.arange(3), given, np.arange(3), normalize=True)
    ((inputs, targets),) = batches(ClientDataset(dataset, np.arange(3)), JOB, PLAIN, 0)
    expected = (given - given.mean(axis=0)) / given.std(axis=0)
    assert inputs.numpy() == pytest.approx(expected[targets.numpy()], abs=1e-6)
