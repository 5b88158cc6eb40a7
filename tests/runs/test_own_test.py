"""What clients keep of their own data: seeded, with all classes, and by patient."""

import numpy as np
import pytest

import fedbb
from fedbb.data.dataset import Dataset, Examples
from fedbb.errors import DataError
from fedbb.recipes.spec import DataSpec
from fedbb.records import Task
from fedbb.runs.federation import Federation, keep_own_test


def divided(labels, clients=2, **columns):
    labels = np.asarray(labels)
    inputs = np.arange(len(labels), dtype=np.float32)[:, None]
    train = Examples(inputs, labels, {k: np.asarray(v, dtype=str) for k, v in columns.items()})
    task = Task.MULTICLASS if labels.ndim == 1 else Task.MULTILABEL
    number = int(labels.max()) + 1 if labels.ndim == 1 else labels.shape[1]
    data = Dataset("rows", task, tuple(map(str, range(number))), train, train)
    return Federation(data, fedbb.partition.iid(data, clients=clients), {"test": train})


def keep(federation, share=0.25, seed=0):
    return keep_own_test(federation, DataSpec(name="rows", own_test=share), seed)


def test_every_sample_is_trained_on_or_kept_by_the_client_that_has_it():
    before = divided(np.arange(60) % 3)
    after = keep(before)
    trained, own = after.dataset.train.inputs[:, 0], after.own_test
    assert sorted([*trained, *own.examples.inputs[:, 0]]) == list(range(60))
    for client, places in enumerate(after.partition.clients):
        mine = {*trained[places], *own.examples.inputs[own.owners == client, 0]}
        assert mine == set(before.partition.clients[client].tolist())
    again, other = keep(before), keep(before, seed=1)
    np.testing.assert_array_equal(own.examples.inputs, again.own_test.examples.inputs)
    assert not np.array_equal(own.examples.inputs, other.own_test.examples.inputs)


def test_each_class_of_a_client_gives_its_share():
    labels = np.repeat([0, 1, 2], [80, 40, 8])
    after = keep(divided(labels, clients=1))
    assert np.bincount(after.own_test.examples.labels).tolist() == [20, 10, 2]


def test_label_sets_of_a_client_give_their_share_and_unknown_labels_are_a_kind():
    labels = np.repeat([[0, 1], [1, np.nan], [0, 0]], [40, 20, 12], axis=0).astype(np.float32)
    own = keep(divided(labels, clients=1)).own_test.examples.labels
    assert [int((own[:, 0] == 1).sum()), int(np.isnan(own[:, 1]).sum()), len(own)] == [5, 5, 18]


def test_patients_are_kept_whole():
    patients = [f"p{number // 4}" for number in range(80)]
    after = keep(divided(np.arange(80) % 2, clients=1, patient=patients))
    trained = set(after.dataset.train.columns["patient"])
    assert not trained & set(after.own_test.examples.columns["patient"])
    assert len(after.own_test.owners) == 20


def test_a_client_of_one_sample_keeps_none_and_nobody_is_an_error():
    after = keep(divided([0, 1, 0], clients=2), share=0.5)
    assert set(after.own_test.owners) < {0, 1}
    assert min(after.partition.sizes) == 1
    with pytest.raises(DataError, match=r"no client can keep 0\.25 of its data"):
        keep(divided([0, 1], clients=2))
