"""What stays with a client: which entries, how they are trained, and the published numbers."""

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedbb.data.dataset import Dataset, Examples
from fedbb.errors import DivergedError, RecipeError
from fedbb.methods import (
    Method,
    build_method,
    ditto,
    fedavg,
    fedavgm,
    fedbn,
    fedper,
    fedrep,
    harmonize,
    lda_head,
)
from fedbb.methods import local as local_only
from fedbb.personal import PERSONAL, KeptEntries, OwnModel
from fedbb.records import ClientState, ModelState, Task
from fedbb.state import mix, replace_entries, select, snapshot
from fedbb.training.checks import check_network
from fedbb.training.config import LocalConfig, TrainJob
from fedbb.training.local import NO_STATE, ClientDataset, train_client
from helpers.toy import equal_states, toy_dataset, toy_network, toy_shares

PLAIN = LocalConfig(batch_size=8, lr=0.1, momentum=0.0, weight_decay=0.0, augment=False)


class Shortcut(nn.Module):
    """A network whose norm of the shortcut has no "bn" in its name."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.downsample = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))
        self.group, self.layer = nn.GroupNorm(2, 4), nn.LayerNorm(4)
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        maps = self.group(self.bn1(self.conv1(x)) + self.downsample(x))
        return self.fc(self.layer(maps.mean(dim=(2, 3))))


def test_norms_are_found_by_their_type():
    network = Shortcut()
    batch = {
        f"{layer}.{entry}"
        for layer in ("bn1", "downsample.1")
        for entry in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    }
    assert KeptEntries("batch-norms").entries(network) == batch
    further = {f"{layer}.{part}" for layer in ("group", "layer") for part in ("weight", "bias")}
    assert KeptEntries("norms").entries(network) == batch | further
    assert KeptEntries("head").entries(network) == {"fc.weight", "fc.bias"}
    assert KeptEntries("all").entries(network) == set(network.state_dict())


def test_a_parameter_that_the_head_shares_stays_under_all_its_names():
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    network[2].weight = network[0].weight
    assert KeptEntries("head").entries(network) == {"0.weight", "2.weight", "2.bias"}


@pytest.mark.parametrize(
    ("method", "network", "message"),
    [
        (fedbn(), nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), "has none"),
        (fedper(), nn.Sequential(nn.Flatten(), nn.Linear(16, 3)), "nothing that is trained"),
    ],
)
def test_a_network_without_the_part_or_without_the_rest_is_refused(method, network, message):
    with pytest.raises(RecipeError, match=f"{method.name}: .*{message}"):
        check_network(network, toy_dataset(), method)


def test_wrong_values_are_refused():
    for wrong in (
        {"part": "body"},
        {"part": "all", "head_epochs": 1},
        {"part": "head", "head_epochs": -1},
    ):
        with pytest.raises(ValueError, match=r"part|head_epochs"):
            KeptEntries(**wrong)
    for wrong in ({"lam": -1.0}, {"lam": float("nan")}, {"own_epochs": 0}, {"own_loss": "other"}):
        with pytest.raises(ValueError, match=r"lam|own_"):
            OwnModel(**wrong)
    with pytest.raises(RecipeError, match='norms is "batch-norms" or "norms"'):
        build_method("fedbn", {"norms": "head"})


def test_a_pull_that_no_step_can_follow_is_refused():
    with pytest.raises(RecipeError, match=r"Ditto: lam 25 times local.lr 0.1 is 2.5"):
        train_toy(ditto(lam=25.0))
    train_toy(ditto(lam=25.0), replace(PLAIN, lr=0.01))


def test_what_works_on_the_merged_model_cannot_be_combined_with_kept_entries():
    with pytest.raises(RecipeError, match=r"FedPer.*: .* works on the merged model, of which"):
        lda_head()(fedper())
    lda_head()(ditto())
    with pytest.raises(RecipeError, match="would lose the personal part of FedPer"):
        harmonize(fedavgm(), fedper())


class Product(nn.Module):
    """y = h·b, whose head is h."""

    def __init__(self):
        super().__init__()
        self.body, self.head = (nn.Linear(1, 1, bias=False) for _ in range(2))
        for layer in (self.body, self.head):
            nn.init.ones_(layer.weight)

    def forward(self, x):
        return self.head(self.body(x))


class Square(nn.Module):
    """(1/2)·(y − target)² for one target."""

    def __init__(self, target):
        super().__init__()
        self.target = target

    def forward(self, logits, labels):
        return 0.5 * (logits - self.target).square().mean()


def one_input():
    inputs = Examples(np.ones((1, 1), dtype=np.float32), np.zeros(1, dtype=np.int64))
    dataset = Dataset("one", Task.MULTICLASS, ("a",), inputs, inputs, (), ())
    return ClientDataset(dataset, np.array([0]))


def train_product(personal, epochs):
    network, method = Product(), Method("product", loss=Square(2.0), personal=personal)
    job = TrainJob(0, 1, 0, snapshot(network))
    return train_client(network, one_input(), job, method, replace(PLAIN, epochs=epochs))


def test_fedrep_and_fedper_have_the_published_numbers():
    """h = b = 1, target 2, eta 0.1: h by two steps, then b by one; or both by three."""
    update, kept = train_product(KeptEntries("head", head_epochs=2), 1)
    assert kept.tensors[f"{PERSONAL}head.weight"].item() == pytest.approx(1.19)
    assert update.state.params["body.weight"].item() == pytest.approx(1.09639)
    assert update.steps == 3
    update, kept = train_product(KeptEntries("head"), 3)
    assert kept.tensors[f"{PERSONAL}head.weight"].item() == pytest.approx(1.2570776452)
    assert update.state.params["body.weight"].item() == pytest.approx(1.2570776452)
    assert update.state.params["head.weight"].item() == 1.0


class Constant(nn.Module):
    """One number w, whatever the input."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.w.expand(len(x), 1)


def ditto_rounds(target, starts, local, **options):
    """Train one client from these global models in turn; return w and v after each round."""
    network, found, kept = Constant(), [], NO_STATE
    first = snapshot(network)
    personal = OwnModel(own_loss="method", **options)
    method = Method("ditto", loss=Square(target), personal=personal)
    for number, start in enumerate(starts, 1):
        state = ModelState({"w": torch.tensor([start])}, {})
        job = TrainJob(0, number, 0, state)
        update, kept = train_client(network, one_input(), job, method, local, kept, first)
        found.append((update.state.params["w"].item(), kept.tensors[f"{PERSONAL}w"].item()))
    return found


def test_ditto_has_the_published_numbers():
    """F_k = (w − a_k)²/2, a = (0, 4), eta 0.1, lam 0.5, two steps a round from w = v = 1."""
    local = replace(PLAIN, epochs=2)
    zero, four = (ditto_rounds(a, (1.0, 1.38), local, lam=0.5) for a in (0.0, 4.0))
    assert zero[0] == pytest.approx((0.81, 0.815))
    assert four[0] == pytest.approx((1.57, 1.555))
    assert 0.25 * zero[0][0] + 0.75 * four[0][0] == pytest.approx(1.38)
    assert zero[1] == pytest.approx((1.1178, 0.7164875))
    assert four[1] == pytest.approx((1.8778, 1.9911375))
    alone = [ditto_rounds(a, (1.0, 1.38), local, lam=0.0)[1][1] for a in (0.0, 4.0)]
    assert alone == pytest.approx([0.6561, 2.0317])
    for steps, value in ((2, 1.825), (3, 2.47375)):
        moving = replace(local, epochs=steps, momentum=0.9)
        assert ditto_rounds(4.0, (1.0,), moving, lam=0.5)[0][1] == pytest.approx(value)


def test_dittos_own_model_comes_to_rest_between_its_optimum_and_the_shared_model():
    """The minimum of (v − a)²/2 + lam·(v − w)²/2 is (a + lam·w)/(1 + lam)."""
    long = replace(PLAIN, epochs=300)
    for lam, start in ((0.0, 3.0), (0.5, 3.0), (4.0, -2.0)):
        ((_, own),) = ditto_rounds(1.0, (start,), long, lam=lam)
        assert own == pytest.approx((1.0 + lam * start) / (1 + lam), abs=1e-4)


def train_toy(method, local=PLAIN, network=None, state=NO_STATE, number=1, client=2):
    network = network or toy_network()
    job = TrainJob(client, number, 0, snapshot(network))
    part = toy_shares(toy_dataset())[client]
    return train_client(network, part, job, method, local, state, snapshot(network))


@pytest.mark.parametrize("lam", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_dittos_shared_model_has_fedavgs_bits(lam, dropout):
    networks = [toy_network(dropout=dropout) for _ in range(2)]
    plain, _ = train_toy(fedavg(), network=networks[0])
    mine, _ = train_toy(ditto(lam=lam), network=networks[1])
    assert equal_states(plain.state, mine.state)


def test_ditto_without_a_pull_is_local_training():
    local = replace(PLAIN, momentum=0.9, weight_decay=1e-3)
    alone = shared = NO_STATE
    for number in (1, 2, 3):
        _, alone = train_toy(local_only(), local, state=alone, number=number)
        _, shared = train_toy(ditto(lam=0.0), local, state=shared, number=number)
    one, two = (select(state.tensors, PERSONAL) for state in (alone, shared))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_the_own_loss_may_be_the_methods():
    plain, same = (
        train_toy(harmonize(ditto(own_loss=loss), build_method("fedbb", {})))[1]
        for loss in ("plain", "method")
    )
    name = f"{PERSONAL}head.weight"
    assert not torch.equal(plain.tensors[name], same.tensors[name])
    reference = train_toy(ditto())[1]
    assert torch.equal(plain.tensors[name], reference.tensors[name])


@pytest.mark.parametrize("method", [fedper(), fedrep(), fedbn(), local_only()])
def test_what_stays_is_sent_back_as_it_came(method):
    network = toy_network()
    start = snapshot(network)
    update, kept = train_toy(method, network=network)
    names = method.personal.entries(network)
    own = select(kept.tensors, PERSONAL)
    assert own.keys() == names
    given = {**start.params, **start.buffers}
    sent = {**update.state.params, **update.state.buffers}
    for name in names:
        assert torch.equal(sent[name], given[name])
        assert not torch.equal(own[name], given[name])
    moved = [name for name in given if not torch.equal(sent[name], given[name])]
    assert bool(moved) == (method.personal.part != "all")
    assert not names & set(moved)


def test_keeping_nothing_is_fedavg_and_a_client_goes_on_with_what_it_kept():
    plain, _ = train_toy(fedavg())
    nothing = Method("nothing", personal=KeptEntries("batch-norms"))
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    states = [
        train_toy(method, network=network_copy(network))[0].state for method in (fedavg(), nothing)
    ]
    assert equal_states(*states)
    _, kept = train_toy(fedper())
    second, _ = train_toy(fedper(), state=kept, number=2)
    fresh, _ = train_toy(fedper(), number=2)
    assert not equal_states(second.state, fresh.state)
    assert not equal_states(plain.state, second.state)


def network_copy(network):
    copy = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    copy.load_state_dict(network.state_dict())
    return copy


def test_fedrep_without_head_epochs_moves_no_head():
    network = toy_network()
    start = snapshot(network)
    _, kept = train_toy(fedrep(head_epochs=0), network=network)
    for name, tensor in select(kept.tensors, PERSONAL).items():
        assert torch.equal(tensor, start.params[name])


def test_frozen_stages_leave_no_trace_in_the_network():
    network = toy_network()
    network.first[0].bias.requires_grad_(False)
    train_toy(fedrep(), network=network)
    stopped = [name for name, p in network.named_parameters() if not p.requires_grad]
    assert stopped == ["first.0.bias"]


def test_an_own_model_that_is_not_finite_stops_the_run():
    broken = ClientState(tensors={f"{PERSONAL}head.bias": torch.full((3,), float("nan"))})
    with pytest.raises(DivergedError, match="client 2, method Ditto, own model"):
        train_toy(ditto(), state=broken)


def filled(seed):
    """Return the state of a small network, each tensor counting up from seed/4 in quarters."""
    layers = {"fc1": nn.Linear(2, 2), "bn1": nn.BatchNorm1d(2), "fc2": nn.Linear(2, 2)}
    network = nn.Sequential(OrderedDict(layers))
    for tensor in network.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_((torch.arange(tensor.numel()) + seed).reshape(tensor.shape) / 4)
    return network, snapshot(network)


def test_fedbn_gives_the_models_of_the_authors_code():
    """`communication` of med-air/FedBN (commit 2fa38ad), weights 1/2, 1/4, 1/4, client 1."""
    (network, received), part = filled(1), KeptEntries("batch-norms")
    trained = [filled(seed)[1] for seed in (0, 3, 7)]
    names = part.entries(network)
    entries = {**received.params, **received.buffers}
    sent = [replace_entries(one, {name: entries[name] for name in names}) for one in trained]
    merged = mix(sent, [0.5, 0.25, 0.25])
    kept = {name: {**trained[1].params, **trained[1].buffers}[name] for name in names}
    served = part.model(merged, received, kept)
    for state, norm in ((merged, [0.25, 0.5]), (served, [0.75, 1.0])):
        assert state.params["fc1.weight"].tolist() == [[0.625, 0.875], [1.125, 1.375]]
        assert state.params["fc2.bias"].tolist() == [0.625, 0.875]
        assert state.params["bn1.weight"].tolist() == state.params["bn1.bias"].tolist() == norm
        assert state.buffers["bn1.running_mean"].tolist() == norm
        assert state.buffers["bn1.running_var"].tolist() == norm
