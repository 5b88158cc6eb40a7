from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedbb.errors import DivergedError
from fedbb.imbalance.counts import count_labels
from fedbb.methods import fedavg, fedbb, fedprox, pnb
from fedbb.records import Task
from fedbb.state import restore, snapshot
from fedbb.training.client_dataset import ClientDataset, batches
from fedbb.training.config import LocalConfig, TrainJob
from fedbb.training.local import train_client
from helpers.toy import drop_rows, equal_states, toy_dataset, toy_network, toy_shares

PLAN = LocalConfig(epochs=2, batch_size=8, lr=0.1)


def train(method, dataset=None, plan=PLAN, client=1, model=None):
    dataset = dataset or toy_dataset()
    model = model or toy_network()
    job = TrainJob(client, round=1, seed=0, state=snapshot(model))
    return train_client(model, toy_shares(dataset)[client], job, method, plan)[0]


def test_training_equals_a_loop_written_by_hand():
    dataset, model = toy_dataset(), toy_network()
    start = snapshot(model)
    share, job = toy_shares(dataset)[1], TrainJob(1, 1, 0, start)
    update, _ = train_client(model, share, job, fedavg(), PLAN)

    restore(model, start)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    losses = []
    for epoch in range(2):
        for images, targets in batches(share, job, PLAN, epoch):
            loss = F.cross_entropy(model(images).logits, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert equal_states(update.state, snapshot(model))
    assert update.steps == len(losses) == 2 * 3
    assert update.train_loss == pytest.approx(np.mean(losses))


def test_what_the_workbench_held_before_does_not_matter():
    used = toy_network(seed=9)
    dataset, fresh = toy_dataset(), toy_network()
    job = TrainJob(1, 1, 0, snapshot(fresh))
    share = toy_shares(dataset)[1]
    first, _ = train_client(fresh, share, job, fedavg(), PLAN)
    second, _ = train_client(used, share, job, fedavg(), PLAN)
    assert equal_states(first.state, second.state)


def test_the_update_is_a_copy_of_the_workbench():
    model = toy_network()
    update = train(fedavg(), model=model)
    before = {name: tensor.clone() for name, tensor in update.state.params.items()}
    train(fedavg(), model=model, client=2)
    assert all(torch.equal(before[name], update.state.params[name]) for name in before)


def test_dropout_draws_from_the_job_and_not_from_the_process():
    first = train(fedavg(), model=toy_network(dropout=0.5))
    torch.rand(5)
    second = train(fedavg(), model=toy_network(dropout=0.5))
    assert equal_states(first.state, second.state)


def test_a_penalty_is_added_to_every_step():
    plan = replace(PLAN, lr=0.02, weight_decay=0.0)
    start = snapshot(toy_network()).params
    moved = train(fedavg(), plan=plan).state.params
    held = train(fedprox(mu=20.0), plan=plan).state.params
    distance = [sum((s[n] - start[n]).norm().item() for n in start) for s in (moved, held)]
    assert distance[1] < 0.5 * distance[0]


def test_a_diverging_client_is_named_with_round_and_method():
    with pytest.raises(DivergedError, match=r"round 1, client 1, method FedAvg: the loss is"):
        train(fedavg(), plan=replace(PLAN, lr=1e30, epochs=5))


def test_a_last_step_that_overflows_is_noticed_too():
    share_of_one_step = replace(PLAN, epochs=1, batch_size=100, lr=1e38, weight_decay=1e38)
    with pytest.raises(DivergedError, match="trained model holds values that are not finite"):
        train(fedavg(), plan=share_of_one_step)


@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize("method", [fedavg(), fedbb()])
def test_a_client_of_one_class_or_none_trains_without_a_nan(task, method):
    dataset = toy_dataset(task)
    if task is Task.MULTICLASS:
        keep = np.flatnonzero(dataset.train.labels == 0)
    else:
        keep = np.flatnonzero(dataset.train.labels.sum(axis=1) == 0)
    narrow = drop_rows(dataset, keep)
    share = ClientDataset(narrow, np.arange(len(keep)))
    job = TrainJob(0, 1, 0, snapshot(toy_network()))
    update, _ = train_client(toy_network(), share, job, method, PLAN)
    assert np.isfinite(update.train_loss)


def test_a_single_class_client_has_no_gradient_under_pnb():
    dataset = toy_dataset()
    narrow = drop_rows(dataset, np.flatnonzero(dataset.train.labels == 0))
    share = ClientDataset(narrow, np.arange(len(narrow.train)))
    start = snapshot(toy_network())
    plan = replace(PLAN, weight_decay=0.0)
    update, _ = train_client(toy_network(), share, TrainJob(0, 1, 0, start), pnb(), plan)
    assert update.train_loss == 0
    assert all(torch.equal(update.state.params[name], start.params[name]) for name in start.params)


def test_counts_of_a_share_are_those_of_its_own_labels():
    dataset = toy_dataset()
    share = toy_shares(dataset)[2]
    expected = count_labels(dataset.train.labels[share.indices], dataset.task, 3)
    assert np.array_equal(share.counts.positive, expected.positive)
