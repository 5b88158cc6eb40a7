"""RIPFL, our reconstruction: the numbers of its parts, its laws, and whole runs."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedbb
from fedbb.errors import RecipeError
from fedbb.losses.evidential import EvidentialLoss, opinion
from fedbb.methods import build_method
from fedbb.methods.ripfl import (
    DISCOUNT,
    FusedModel,
    Reliability,
    ReliableClients,
    RisingEvidential,
    discount,
    divide,
    fuse_opinions,
    ripfl,
)
from fedbb.personal import PERSONAL
from fedbb.records import RunFacts, Task, Visibility
from fedbb.runs.folder import RunFolder
from fedbb.runs.personal import personalize
from fedbb.state import snapshot
from fedbb.training.config import LocalConfig, TrainJob
from fedbb.training.local import train_client
from helpers.small_run import finish, small_recipe, without_seconds
from helpers.toy import toy_dataset, toy_network, toy_shares

LOCAL = LocalConfig(batch_size=4, lr=0.05, augment=False)


def logits_of(*alpha):
    """Return logits whose evidence is α − 1: the inverse of softplus, −∞ for none."""
    evidence = torch.tensor([alpha], dtype=torch.float64) - 1
    return torch.log(torch.expm1(evidence))


def test_the_published_numbers():
    """α = (5, 1, 2) and (3, 4, 1): conflict Q = .265625."""
    (p, b1, u1), (_, b2, u2) = (opinion(logits_of(*a)) for a in ((5, 1, 2), (3, 4, 1)))
    np.testing.assert_allclose(p, [[0.625, 0.125, 0.25]])
    np.testing.assert_allclose(b1, [[0.5, 0, 0.125]])
    np.testing.assert_allclose((u1, u2), [[0.375], [0.375]])
    belief, unknown = fuse_opinions((b1, u1), (b2, u2))
    np.testing.assert_allclose(belief, [[0.55319149, 0.19148936, 0.06382979]], atol=1e-8)
    np.testing.assert_allclose(unknown, [0.19148936], atol=1e-8)
    kept = {DISCOUNT: torch.tensor(1.0, dtype=torch.float64)}
    fused = FusedModel().fuse(logits_of(5, 1, 2).numpy(), logits_of(3, 4, 1).numpy(), kept)
    np.testing.assert_allclose(np.exp(fused), [[0.61702128, 0.25531915, 0.12765957]], atol=1e-8)


floats = st.floats(-8, 8)
rows = st.lists(floats, min_size=3, max_size=3)


@given(rows, rows, st.floats(0, 1))
def test_laws_of_fusion(one, two, trust):
    first, second = (opinion(torch.tensor([z], dtype=torch.float64))[1:] for z in (one, two))
    belief, unknown = fuse_opinions(first, second)
    back = fuse_opinions(second, first)
    torch.testing.assert_close(back[0], belief)
    assert belief.sum() + unknown == pytest.approx(1)
    assert unknown <= min(first[1], second[1]) + 1e-12
    nothing = (torch.zeros(1, 3).double(), torch.ones(1).double())
    same = fuse_opinions(first, nothing)
    torch.testing.assert_close(same[0], first[0])
    torch.testing.assert_close(same[1], first[1])
    less = discount(second, trust)
    assert less[0].sum() + less[1] == pytest.approx(1)
    own = np.array([one])
    alone = FusedModel().fuse(own, np.array([two]), {})
    np.testing.assert_allclose(np.exp(alone), opinion(torch.from_numpy(own))[0], atol=1e-12)


def test_equal_figures_draw_all_alike_and_weigh_as_fedavg():
    step = ReliableClients()
    state = step.begin(snapshot(toy_network()), RunFacts(Task.MULTICLASS, 3, None, 4, 0), None)
    np.testing.assert_allclose(step.shares(state), [0.25] * 4)
    weights = np.array([0.2, 0.3, 0.5])
    np.testing.assert_array_equal(step.weigh_present(state, np.array([0, 1, 3]), weights), weights)
    low = {"reliability": torch.tensor([0.0, 0.3, 0.6, 0.9]).double()}
    np.testing.assert_allclose(step.shares(low), np.array([0.05, 0.3, 0.6, 0.9]) / 1.85)
    np.testing.assert_array_equal(
        step.weigh_present(low, np.array([0, 1, 3]), weights), [0.0, 0.3, 0.5]
    )


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 1)), min_size=1, max_size=9))
def test_at_least_half_of_the_clients_stay(pairs):
    weights, figures = np.array(pairs).T
    kept = divide(weights, figures)
    assert 2 * np.count_nonzero(kept) >= len(weights)
    assert kept.any()


def test_the_penalty_on_wrong_evidence_rises_over_ten_rounds():
    step, loss = ReliableClients(), RisingEvidential(2.0)
    rises = [step.broadcast({}, number)["rise"].item() for number in (1, 5, 10, 40)]
    assert rises == [0.1, 0.5, 1.0, 1.0]
    bound = loss.receive({"ripfl.rise": torch.tensor(0.5)}).bind(None, Task.MULTICLASS)
    logits, target = torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([1])
    assert bound(logits, target) == EvidentialLoss(kl=1.0)(logits, target)


def train(method, state=None, number=1):
    network, part = toy_network(), toy_shares(toy_dataset())[2]
    broadcast = {"ripfl.rise": torch.tensor(0.1, dtype=torch.float64)}
    job = TrainJob(2, number, 0, snapshot(network), broadcast)
    more = () if state is None else (state,)
    return (*train_client(network, part, job, method, LOCAL, *more), network, part)


def test_a_client_notes_how_the_received_model_does_and_sends_one_figure():
    update, kept, network, part = train(ripfl())
    received = toy_network().eval()
    inputs = torch.from_numpy(part.dataset.train.inputs[part.indices])
    labels = torch.from_numpy(part.dataset.train.labels[part.indices])
    with torch.no_grad():
        right = (received(inputs).logits.argmax(1) == labels).double().mean()
        network.load_state_dict({**update.state.params, **update.state.buffers})
        beliefs = opinion(network.eval()(inputs).logits.double())[1]
    assert kept.tensors[f"{PERSONAL}{DISCOUNT}"] == right
    assert update.statistics.keys() == {"reliability.belief"}
    mean = beliefs.gather(1, labels.unsqueeze(1)).mean()
    assert update.statistics["reliability.belief"].item() == pytest.approx(mean.item(), abs=1e-6)


def test_impossible_figures_are_refused():
    for belief in (-0.1, 1.0):
        assert "not from 0 to below 1" in Reliability().fault({"belief": torch.tensor(belief)})
    assert Reliability().fault({"belief": torch.tensor(0.4)}) is None
    with pytest.raises(RecipeError, match="least must be above 0"):
        build_method("ripfl", {"least": 0.0})
    assert "econstruction" in ripfl.__doc__.splitlines()[0]
    assert not ripfl().supports(Task.MULTILABEL)
    assert ripfl().server[0].visibility is Visibility.FIGURES


def simulate(**settings):
    data = toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=4, concentration=0.5, seed=1)
    settings = {"rounds": 3, "participation": 0.5, "local": LOCAL, "bootstrap": 0, **settings}
    return fedbb.simulate(data, clients, model=toy_network, method=ripfl(), **settings)


def test_runs_resume_and_have_the_same_bits_in_worker_processes(tmp_path):
    whole = simulate(out=tmp_path / "whole")

    class LeaveError(Exception):
        pass

    def leave(record):
        if record.round == 2:
            raise LeaveError

    with pytest.raises(LeaveError):
        simulate(out=tmp_path / "part", progress=leave)
    assert simulate(out=tmp_path / "part", resume=True).sha256 == whole.sha256
    assert simulate(out=tmp_path / "pool", workers=2).sha256 == whole.sha256
    records = [
        without_seconds(RunFolder(tmp_path / n).records()) for n in ("whole", "part", "pool")
    ]
    assert records[0] == records[1] == records[2]


def test_own_and_fused_predictions_are_columns(tmp_path):
    recipe = small_recipe(tmp_path, method={"name": "ripfl"}, rounds={"number": 2})
    finish(recipe, tmp_path / "run")
    rows = personalize(tmp_path / "run")
    assert all(None not in (row.shared, row.personal, row.fused) for row in rows)
    private = small_recipe(tmp_path, method={"name": "ripfl"}, privacy="masked")
    with pytest.raises(RecipeError, match=r"Reliability of RIPFL .* needs the figures of single"):
        finish(private, tmp_path / "private")
