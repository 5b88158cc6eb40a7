"""ISFL: the published numbers, the laws of its shares, and how a client draws."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedbb
from fedbb.errors import RecipeError
from fedbb.methods import Method, build_method, fedavg
from fedbb.methods.isfl import (
    SHARES,
    ClassSampling,
    _distances,
    head_distance,
    isfl,
    next_shares,
)
from fedbb.records import Task
from fedbb.runs.folder import RunFolder
from fedbb.sampling import SAMPLING, SampleView, TrainedView
from fedbb.state import snapshot
from fedbb.training.config import LocalConfig, TrainJob
from fedbb.training.local import train_client
from helpers.toy import toy_dataset, toy_network, toy_shares

MIX, OWN, STEEP = (np.array(v) for v in ((0.4, 0.3, 0.3), (0.7, 0.2, 0.1), (1.0, 2.0, 3.0)))
LOCAL = LocalConfig(batch_size=4, lr=0.05, augment=False)


def test_the_published_numbers():
    """L² = 1, 4, 9 of 14: 1 − 3·L²/14 at length one; the third class falls to 2 % of .1."""
    np.testing.assert_allclose(
        next_shares(MIX, OWN, STEEP, 0.02), (0.65215385, 0.34584615, 0.002), atol=1e-8
    )
    np.testing.assert_allclose(
        next_shares(MIX, OWN, STEEP, 0.02) / OWN, (0.93164835, 1.72923077, 0.02), atol=1e-8
    )
    np.testing.assert_allclose(
        next_shares(MIX, OWN, STEEP, 0.02, 0.5), (0.52607692, 0.32292308, 0.151), atol=1e-8
    )
    two = next_shares(np.array([0.625, 0.375]), np.array([0.6, 0.4]), np.array([2.0, 1.0]), 0.02)
    np.testing.assert_allclose(two, (0.012, 0.988), atol=1e-9)


def test_the_distance_of_head_gradients_has_the_published_number():
    parts = ([0.2, -0.5, 0.3], [1.0, 2.0], [0.1, -0.4, 0.3], [1.5, 1.0])
    d1, h1, d2, h2 = (np.array([part]) for part in parts)
    assert head_distance(d1, h1, d2, h2) == pytest.approx([0.7713624310])
    by_hand = np.outer(d1, [*h1[0], 1]) - np.outer(d2, [*h2[0], 1])
    assert head_distance(d1, h1, d2, h2) == pytest.approx([np.linalg.norm(by_hand)])


positive = st.floats(0.01, 10)


@given(
    st.integers(2, 6).flatmap(
        lambda n: st.lists(st.tuples(*[positive] * 3), min_size=n, max_size=n)
    ),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0.1, 10),
    st.randoms(),
)
def test_laws_of_the_shares(rows, sigma, strength, scale, random):
    mix, own, steep = np.array(rows).T
    mix, own = mix / mix.sum(), own / own.sum()
    q = next_shares(mix, own, steep, sigma, strength)
    assert q.sum() == pytest.approx(1)
    assert (q >= np.minimum(sigma * own, mix) - 1e-9).all()
    np.testing.assert_allclose(next_shares(mix, own, scale * steep, sigma, strength), q, atol=1e-7)
    order = list(range(len(mix)))
    random.shuffle(order)
    turned = next_shares(mix[order], own[order], steep[order], sigma, strength)
    np.testing.assert_allclose(turned, q[order], atol=1e-7)
    np.testing.assert_array_equal(next_shares(mix, own, np.full(len(mix), scale), sigma), mix)
    np.testing.assert_allclose(next_shares(mix, own, steep, sigma, 0.0), mix, atol=1e-12)


def test_samples_are_drawn_with_the_shares_of_their_classes():
    labels = np.array([0] * 7 + [1] * 2 + [3])
    kept = {SHARES: torch.tensor([0.2, 0.5, 0.0, 0.3], dtype=torch.float64)}
    chances = ClassSampling().chances(SampleView(labels, 4, kept, {}))
    for c, share in enumerate((0.2, 0.5, 0.0, 0.3)):
        assert chances[labels == c].sum() == pytest.approx(share)
    drawn = labels[np.random.default_rng(0).choice(10, 40_000, p=chances)]
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / 40_000, kept[SHARES], atol=0.01)
    own = tuple(np.bincount(labels, minlength=4) / 10 + 1e-12)
    even = ClassSampling(mix=own).chances(SampleView(labels, 4, {}, {}))
    np.testing.assert_allclose(even, np.full(10, 0.1), atol=1e-9)


def test_a_client_without_a_class_never_draws_it_and_sums_come_from_the_server():
    labels = np.array([0, 0, 2])
    cases = torch.tensor([[6, 9, 2], [0, 0, 0]])
    view = SampleView(labels, 3, {}, {"label-counts.cases": cases})
    chances = ClassSampling(mix="sum").chances(view)
    np.testing.assert_allclose(chances, (0.375, 0.375, 0.25))
    assert isfl(mix="sum").server
    assert not isfl().server


def trained_view(seed=1):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3))
    start = snapshot(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    data = toy_dataset().train

    def inputs(positions):
        return torch.from_numpy(data.inputs[positions]), torch.from_numpy(data.labels[positions])

    return TrainedView(network.eval(), start, inputs, np.random.default_rng(0)), data.labels


def test_gradients_of_the_head_are_those_of_autograd():
    view, _ = trained_view()
    probe = np.arange(6)
    for parameter in view.model[1].parameters():
        parameter.requires_grad_(False)
    np.testing.assert_allclose(
        _distances(view, probe, head=True), _distances(view, probe, head=False), rtol=1e-4
    )


def test_equal_models_are_drawn_by_the_mix():
    view, labels = trained_view()
    same = TrainedView(view.model, snapshot(view.model), view.inputs, view.rng)
    kept = ClassSampling(mix=(0.5, 0.3, 0.2)).keep(SampleView(labels, 3, {}, {}), same)
    np.testing.assert_allclose(kept[SHARES], (0.5, 0.3, 0.2))


@pytest.mark.parametrize("gradients", ["all", "head"])
def test_a_client_keeps_shares_with_which_it_draws_next(gradients):
    network, part = toy_network(), toy_shares(toy_dataset())[2]
    method = isfl(gradients=gradients, probe=9)
    start = snapshot(network)
    update, kept = train_client(network, part, TrainJob(2, 1, 0, start), method, LOCAL)
    shares = kept.tensors[f"{SAMPLING}{SHARES}"]
    assert shares.sum() == pytest.approx(1)
    assert update.steps == -(-len(part) // 4)
    second, _ = train_client(network, part, TrainJob(2, 2, 0, start), method, LOCAL, kept)
    fresh, _ = train_client(network, part, TrainJob(2, 2, 0, start), method, LOCAL)
    assert not torch.equal(second.state.params["head.weight"], fresh.state.params["head.weight"])


def test_every_epoch_draws_anew_and_the_ratio_sets_its_length():
    seen = []

    class Watched(nn.Module):
        def forward(self, logits, targets):
            seen.append(targets.tolist())
            return nn.functional.cross_entropy(logits, targets)

    network, part = toy_network(), toy_shares(toy_dataset())[2]
    sampling = ClassSampling(ratio=0.5, probe=3)
    method = Method("watched", loss=Watched(), sampling=sampling)
    local = LocalConfig(batch_size=64, lr=0.01, epochs=2, augment=False)
    train_client(network, part, TrainJob(2, 1, 0, snapshot(network)), method, local)
    assert [len(labels) for labels in seen] == [int(0.5 * len(part))] * 2
    assert seen[0] != seen[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": 1.5}, "strength is from 0 to 1"),
        ({"sigma": -0.1}, "sigma is from 0 to 1"),
        ({"ratio": 0.0}, "ratio must be"),
        ({"probe": 0}, "probe must be"),
        ({"mix": "own"}, 'mix is "even", "sum"'),
        ({"mix": [0.5, 0.0]}, "above 0"),
        ({"gradients": "none"}, "gradients must be one of all, head"),
    ],
)
def test_wrong_values_are_refused(options, message):
    with pytest.raises(RecipeError, match=message):
        build_method("isfl", options)


def simulate(method, **settings):
    data = toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=3, concentration=0.5, seed=1)
    settings = {"rounds": 2, "local": LOCAL, "bootstrap": 0, **settings}
    return fedbb.simulate(data, clients, model=toy_network, method=method, **settings)


def test_a_mix_of_other_classes_and_multi_label_data_are_refused():
    with pytest.raises(RecipeError, match="ISFL: mix has 2 shares for 3 classes"):
        simulate(isfl(mix=[0.5, 0.5]))
    assert not isfl().supports(Task.MULTILABEL)
    assert isfl().supports(Task.MULTICLASS)


def test_a_run_resumes_and_has_the_same_bits_in_worker_processes(tmp_path):
    method = isfl(probe=6, mix="sum")
    whole = simulate(method, out=tmp_path / "whole")

    class LeaveError(Exception):
        pass

    def leave(record):
        raise LeaveError

    with pytest.raises(LeaveError):
        simulate(method, out=tmp_path / "part", progress=leave)
    assert simulate(method, out=tmp_path / "part", resume=True).sha256 == whole.sha256
    assert simulate(method, workers=2).sha256 == whole.sha256
    assert simulate(fedavg()).sha256 != whole.sha256
    kept = RunFolder(tmp_path / "whole").client_states.load(0, 2).tensors
    assert kept.keys() == {f"{SAMPLING}{SHARES}"}


def test_a_private_run_is_the_open_run_to_fixed_point_error(tmp_path):
    method = isfl(probe=6, mix="sum")
    plain, private = (simulate(method, privacy=privacy) for privacy in ("none", "masked"))
    one, two = (run.model.state_dict() for run in (plain, private))
    for name, tensor in one.items():
        if tensor.is_floating_point():  # counters are not summed
            torch.testing.assert_close(two[name], tensor, atol=2e-3, rtol=0)
