import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import fedbb.training.local as local_training
from fedbb.data.dataset import Dataset
from fedbb.errors import DivergedError, RecipeError
from fedbb.imbalance import count_labels
from fedbb.methods import METHODS, fedalign, fedavg, fedbb, fedprox, pnb
from fedbb.models.base import NetworkModule, Outputs
from fedbb.personal import PERSONAL
from fedbb.records import ClientState, Task
from fedbb.rounds.replies import expected_steps
from fedbb.state import restore, select, snapshot
from fedbb.training.config import CentralConfig, LocalConfig, LRSchedule, TrainJob
from fedbb.training.local import ClientDataset, batches, make_client_datasets, train_client
from helpers.toy import drop_rows, equal_states, toy_dataset, toy_network, toy_shares

DATASET = toy_dataset()
JOB = TrainJob(client=2, round=3, seed=0, state=None)
UNAUGMENTED = LocalConfig(batch_size=7, augment=False)


def epoch(samples=40, plan=UNAUGMENTED, job=JOB, number=0):
    return [
        batch[:2]
        for batch in batches(ClientDataset(DATASET, np.arange(samples)), job, plan, number)
    ]


@given(st.integers(1, 60), st.integers(1, 70))
def test_every_sample_comes_once_an_epoch(samples, size):
    cut = epoch(samples, replace(UNAUGMENTED, batch_size=size))
    shown = torch.cat([images for images, _ in cut]).flatten(1)
    expected = torch.from_numpy(DATASET.train.inputs[:samples]).flatten(1)
    assert sorted(shown.tolist()) == sorted(expected.tolist())
    assert all(len(images) == size for images, _ in cut[:-1])


@pytest.mark.parametrize(("samples", "left"), [(40, 5), (5, 1), (35, 5), (36, 5)])
def test_drop_last_keeps_a_short_batch_that_is_the_only_one(samples, left):
    assert len(epoch(samples, replace(UNAUGMENTED, drop_last=True))) == left


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


def drawn(job=JOB, number=0):
    """Return the augmented images of an epoch in an order of their own: equal images all."""
    inputs = np.repeat(DATASET.train.inputs[:1], 40, axis=0)
    alike = replace(DATASET, train=replace(DATASET.train, inputs=inputs, labels=LABELS))
    client = ClientDataset(alike, np.arange(40))
    shown = torch.cat([images for images, *_ in batches(client, job, LocalConfig(), number)])
    return sorted(shown.flatten(1).tolist())


LABELS = DATASET.train.labels[:40]


def test_augmentation_depends_on_seed_round_client_and_epoch():
    others = [
        drawn(replace(JOB, **change)) for change in ({"round": 4}, {"client": 1}, {"seed": 5})
    ]
    assert drawn() == drawn()
    assert drawn() not in [*others, drawn(number=1)]


def test_labels_are_counted_once_for_all_clients(monkeypatch):
    calls = []
    for name in ("count_groups", "count_labels"):
        count = getattr(local_training, name)
        monkeypatch.setattr(
            local_training,
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
    ((inputs, targets, _),) = batches(ClientDataset(dataset, np.arange(5)), JOB, UNAUGMENTED, 0)
    assert inputs.dtype == shown
    assert inputs.shape == given.shape
    scale = 255 if given.dtype == np.uint8 else 1
    expected = torch.from_numpy(given / scale).to(shown)[targets]
    assert torch.equal(inputs, expected)


def test_batches_are_normalized_by_feature_if_asked():
    given = np.array([[0.0, 10.0], [2.0, 30.0], [4.0, 20.0]])
    dataset = Dataset.from_arrays(given, np.arange(3), given, np.arange(3), normalize=True)
    ((inputs, targets, _),) = batches(ClientDataset(dataset, np.arange(3)), JOB, UNAUGMENTED, 0)
    expected = (given - given.mean(axis=0)) / given.std(axis=0)
    assert inputs.numpy() == pytest.approx(expected[targets.numpy()], abs=1e-6)


PLAN = LocalConfig(epochs=2, batch_size=8, lr=0.1)


def train(method, dataset=None, plan=PLAN, client=1, model=None):
    dataset = dataset or toy_dataset()
    model = model or toy_network()
    job = TrainJob(client, round=1, seed=0, state=snapshot(model))
    return train_client(model, toy_shares(dataset)[client], job, method, plan)[0]


BY_HAND = {
    "sgd": (PLAN, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4)),
    "adam": (
        replace(PLAN, optimizer="adam", lr=0.01),
        lambda p: torch.optim.Adam(p, 0.01, weight_decay=1e-4),
    ),
    "adamw": (
        replace(PLAN, optimizer="adamw", lr=0.01, betas=(0.8, 0.9), weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, 0.01, betas=(0.8, 0.9), weight_decay=0.1),
    ),
    "a schedule": (
        replace(PLAN, schedule=LRSchedule(warmup=3)),
        lambda p: torch.optim.SGD(p, 0.1 / 4, momentum=0.9, weight_decay=1e-4),
    ),
}


@pytest.mark.parametrize("case", BY_HAND)
@pytest.mark.parametrize("clip", [None, 0.05])
def test_training_equals_a_loop_written_by_hand(case, clip):
    plan, make_optimizer = BY_HAND[case]
    dataset, model = toy_dataset(), toy_network()
    start = snapshot(model)
    share, job = toy_shares(dataset)[1], TrainJob(1, 1, 0, start)
    update, _ = train_client(model, share, job, fedavg(), replace(plan, clip=clip))

    restore(model, start)
    model.train()
    optimizer = make_optimizer(model.parameters())
    losses = []
    for epoch in range(2):
        for images, targets, _ in batches(share, job, plan, epoch):
            loss = F.cross_entropy(model(images).logits, targets)
            optimizer.zero_grad()
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            losses.append(loss.item())
    assert equal_states(update.state, snapshot(model))
    assert update.steps == len(losses) == 2 * 3
    assert update.train_loss == pytest.approx(np.mean(losses))


def test_a_penalty_is_added_to_the_loss():
    """At the global model FedProx's penalty has no gradient, so one step is one of FedAvg."""
    one_step = LocalConfig(epochs=1, batch_size=100, lr=0.1)
    plain, beside = train(fedavg(), plan=one_step), train(fedprox(mu=10.0), plan=one_step)
    assert equal_states(beside.state, plain.state)
    assert beside.train_loss == plain.train_loss
    several = train(fedavg(), plan=PLAN), train(fedprox(mu=10.0), plan=PLAN)
    assert not equal_states(several[0].state, several[1].state)


@pytest.mark.parametrize(("own", "given"), [(0.05, None), (0.05, 3.0), (3.0, 0.05)])
def test_a_gradient_is_clipped_to_the_smaller_of_two_bounds(own, given):
    clipped = train(fedalign(clip=own), plan=replace(PLAN, clip=given))
    expected = train(fedalign(clip=0.05))
    assert equal_states(clipped.state, expected.state)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_an_optimizer_starts_anew_in_every_round(optimizer):
    dataset, model = toy_dataset(), toy_network()
    plan = replace(PLAN, optimizer=optimizer)
    job = TrainJob(1, 1, 0, snapshot(model))
    update, kept = train_client(model, toy_shares(dataset)[1], job, fedavg(), plan)
    assert kept == ClientState()
    again, _ = train_client(model, toy_shares(dataset)[1], job, fedavg(), plan, kept)
    assert equal_states(update.state, again.state)


def test_central_training_goes_on_with_the_optimizer_that_it_kept():
    share, model = toy_shares(toy_dataset())[1], Plain()
    plan = CentralConfig(epochs=1, batch_size=100, lr=0.1, momentum=0.9)
    job = TrainJob(1, 1, 0, snapshot(model))
    _, kept = train_client(model, share, job, fedavg(), plan)
    anew, _ = train_client(model, share, job, fedavg(), plan)
    on, _ = train_client(model, share, job, fedavg(), plan, kept)
    # v ← 0.9·v + g: from the same model and images the second step is 1.9 times the first.
    for name, start in job.state.params.items():
        step = anew.state.params[name] - start
        assert torch.allclose(on.state.params[name] - start, 1.9 * step, rtol=1e-4, atol=1e-7)
        assert step.abs().max() > 1e-4


def test_training_is_in_training_mode_whatever_the_model_did_before():
    dropout = nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.BatchNorm1d(3), nn.Dropout())
    state = snapshot(dropout)
    share, job = toy_shares(toy_dataset())[1], TrainJob(1, 1, 0, state)
    first, _ = train_client(dropout.train(), share, job, fedavg(), PLAN)
    second, _ = train_client(dropout.eval(), share, job, fedavg(), PLAN)
    assert equal_states(first.state, second.state)
    assert not torch.equal(first.state.buffers["2.running_mean"], state.buffers["2.running_mean"])


def test_a_method_for_sgd_refuses_adam_before_it_trains():
    with pytest.raises(RecipeError, match=r"FedNova needs local\.optimizer"):
        train(METHODS["fednova"](), plan=replace(PLAN, optimizer="adam"))


class Plain(NetworkModule):
    """A network without batch norm, in which samples do not act on each other."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(16, 3)

    def forward(self, images):
        embedding = images.flatten(1)
        return Outputs(self.head(embedding), embedding, ())


PLAIN = replace(PLAN, channels_last=False)


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 25), st.integers(1, 7), st.integers(1, 4), st.sampled_from(["sgd", "adamw"]))
def test_some_batches_of_a_step_equal_one_large_batch(samples, size, number, optimizer):
    plan = replace(PLAIN, lr=0.02, augment=False, optimizer=optimizer)
    share = ClientDataset(toy_dataset(), np.arange(samples))
    job = TrainJob(0, 1, 0, snapshot(Plain()))
    whole = replace(plan, batch_size=size * number)
    parts = replace(plan, batch_size=size, accumulate=number)
    one, _ = train_client(Plain(), share, job, fedprox(), whole)
    two, _ = train_client(Plain(), share, job, fedprox(), parts)
    assert one.steps == two.steps == expected_steps(samples, parts)
    assert two.train_loss == pytest.approx(one.train_loss, rel=1e-5)
    for name, tensor in one.state.params.items():
        assert torch.allclose(tensor, two.state.params[name], atol=1e-5)


@pytest.mark.parametrize(("samples", "steps"), [(17, 2), (12, 2), (3, 1)])
def test_a_short_last_batch_is_dropped_before_batches_are_grouped(samples, steps):
    plan = replace(PLAIN, epochs=1, batch_size=4, accumulate=2, drop_last=True)
    share = ClientDataset(toy_dataset(), np.arange(samples))
    job = TrainJob(0, 1, 0, snapshot(Plain()))
    update, _ = train_client(Plain(), share, job, fedavg(), plan)
    assert update.steps == steps == expected_steps(samples, plan)


# Methods with server steps train on what is broadcast; their runs are tested elsewhere. Which
# entries a compressed change keeps may depend on its last bits.
@pytest.mark.parametrize(
    "method",
    [name for name, build in METHODS.items() if not build().server and build().compression is None],
)
def test_every_method_trains_in_half_precision_close_to_full(method):
    dataset, model = toy_dataset(), toy_network(projection=True)
    start = snapshot(model)
    share, job = toy_shares(dataset)[1], TrainJob(1, 1, 0, start)
    previous = ClientState(snapshot(toy_network(seed=5, projection=True)))
    (full, trained), (half, in_half) = (
        trained_model(
            METHODS[method](),
            start,
            train_client(
                model,
                share,
                job,
                METHODS[method](),
                replace(PLAN, lr=0.01, precision=name),
                previous,
            ),
        )
        for name in ("float32", "bf16")
    )
    assert not equal_states(trained, in_half)
    assert half.train_loss == pytest.approx(full.train_loss, rel=0.03)
    for name, tensor in in_half.params.items():
        assert tensor.dtype == torch.float32
        moved = trained.params[name] - start.params[name]
        assert (tensor - trained.params[name]).norm() < 0.2 * moved.norm() + 1e-3


def trained_model(method, start, result):
    """Return the update of a client and the model that it trained, with what it keeps of it."""
    update, state = result
    if method.personal is None:
        return update, update.state
    return update, method.personal.model(update.state, start, select(state.tensors, PERSONAL))


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


class Drawing(Plain):
    """A network that keeps what torch draws for it in the forward pass, as dropout would."""

    def __init__(self):
        super().__init__()
        self.drawn = []

    def forward(self, images):
        self.drawn.append(torch.rand(()).item())
        return super().forward(images)


def drawn_in(number=1, client=1, seed=0):
    model = Drawing()
    job = TrainJob(client, round=number, seed=seed, state=snapshot(model))
    train_client(model, toy_shares(toy_dataset())[1], job, fedavg(), PLAIN)
    return model.drawn


def test_dropout_differs_between_steps_rounds_clients_and_seeds():
    drawn = drawn_in()
    assert drawn_in() == drawn
    assert len(set(drawn)) == len(drawn) == 6
    for other in (drawn_in(number=2), drawn_in(client=2), drawn_in(seed=1)):
        assert set(drawn).isdisjoint(other)


@pytest.mark.parametrize("method", [fedalign(clip=1e-3), fedavg()], ids=["own", "given"])
def test_a_step_is_no_longer_than_the_bound_of_its_gradient(method):
    plan = LocalConfig(batch_size=100, lr=1.0, momentum=0.0, weight_decay=0.0, clip=1e-3)
    plan = replace(plan, clip=None) if method.needs.clip else plan
    start = snapshot(toy_network()).params
    moved = train(method, plan=plan).state.params
    length = math.sqrt(sum((moved[name] - start[name]).square().sum().item() for name in start))
    assert length == pytest.approx(1e-3, rel=1e-3)


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
