"""pFedLA: the published numbers, the sign of its gradient, its laws, and whole runs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedbb
from fedbb.aggregation.server_step import Turn
from fedbb.errors import RecipeError
from fedbb.methods import build_method
from fedbb.methods.pfedla import (
    HYPERNETS,
    LayerMixing,
    layer_shares,
    mix_rows,
    pfedla,
    run_hypernet,
)
from fedbb.records import ModelState, RunFacts, Task, Visibility
from fedbb.runs.folder import RunFolder
from fedbb.runs.personal import personalize
from fedbb.state import mix, select
from helpers.small_run import finish, small_recipe, without_seconds
from helpers.toy import toy_dataset

FACTS = RunFacts(Task.MULTICLASS, 3, "3", clients=3, seed=0)


def test_the_published_numbers_of_a_step():
    """θ = (2, 6), u = (1, 3): A = (.25, .75), θ̄ = 5; training ends at 4.4, rate .5."""
    models = torch.tensor([[2.0], [6.0]])
    u = torch.tensor([[1.0, 3.0]], dtype=torch.float64, requires_grad=True)
    shares, learnt = layer_shares(u, 0)
    assert shares.tolist() == [[0.25, 0.75]]
    assert learnt.all()
    start = mix_rows(models, shares[0].tolist())
    assert start.item() == 5
    slope = models.double() @ (start.double() - 4.4)
    (found,) = torch.autograd.grad(shares, u, slope.unsqueeze(0))
    torch.testing.assert_close(found, torch.tensor([[-0.45, 0.15]]).double(), atol=1e-6, rtol=0)
    moved = u.detach() - 0.5 * found
    torch.testing.assert_close(moved, torch.tensor([[1.225, 2.925]]).double(), atol=1e-6, rtol=0)
    after = layer_shares(moved, 0)[0]
    wanted = torch.tensor([[0.29518072, 0.70481928]]).double()
    torch.testing.assert_close(after, wanted, atol=1e-7, rtol=0)
    assert mix_rows(models, after[0].tolist()).item() == pytest.approx(4.81927711)


def test_the_published_numbers_of_the_chain():
    net = {
        "embedding": torch.tensor([1.0, -1.0]),
        "0.weight": torch.tensor([[1.0, 0.0], [0.5, -0.5]]),
        "0.bias": torch.zeros(2),
        "heads.weight": torch.tensor([[[0.5, 0.5], [1.0, 2.0]]]),
        "heads.bias": torch.zeros(1, 2),
    }
    leaves = {name: tensor.double().requires_grad_() for name, tensor in net.items()}
    u = run_hypernet(leaves)
    assert u.tolist() == [[1.0, 3.0]]
    shares, _ = layer_shares(u, 0)
    slope = torch.tensor([[2 * 0.6, 6 * 0.6]], dtype=torch.float64)
    names = ("heads.weight", "0.weight", "embedding")
    found = torch.autograd.grad(shares, [leaves[name] for name in names], slope)
    wanted = (
        [[[-0.45, -0.45], [0.15, 0.15]]],
        [[-0.075, 0.075], [0.075, -0.075]],
        [-0.0375, -0.0375],
    )
    for gradient, numbers in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, torch.tensor(numbers).double(), atol=1e-7, rtol=0)


def pattern(*shape):
    """Return the numbers 1/8 to 5/8 over and over."""
    size = torch.tensor(shape).prod()
    return ((torch.arange(size) % 5 + 1) / 8).reshape(shape)


# Gradients of FL-bench's hypernetwork (commit 06e658b) for client 1 of 3, whose training ended at
# ENDS. It puts end − start into the product and subtracts: the negative of ours.
ENDS = {"a.weight": [[2.0, 3.0], [5.0, 8.0]], "b.weight": [0.25, -0.5]}
FL_BENCH = {
    "embedding": [-0.0010572685, -0.0021048527],
    "0.weight": [[-0.0031282264, -0.0041709686], [-1.45263e-05, -1.93684e-05]],
    "0.bias": [-0.0083419371, -3.87369e-05],
    "1.weight": [[0.0361610473, 0.0652561428], [-0.0181015868, -0.032666082]],
    "1.bias": [0.1330061509, -0.0665805493],
    "2.weight": [[-0.7512037925, -1.3091755592], [0.3414273487, 0.5950293977]],
    "2.bias": [-2.9270650057, 1.3303714044],
    "heads.weight": [
        [
            [2.0057105454, 3.4528738698],
            [0.1377767621, 0.2371856611],
            [-1.7301570212, -2.9785025476],
        ],
        [
            [-0.1675369245, -0.2884184212],
            [-0.0115084876, -0.0198121091],
            [0.1445199493, 0.248794203],
        ],
    ],
    "heads.bias": [
        [8.2236140078, 0.564898516, -7.0938169759],
        [-0.6869181611, -0.0471859513, 0.5925462585],
    ],
}


def test_mixtures_and_gradients_are_those_of_fl_bench_but_for_the_sign():
    net = {"embedding": pattern(3, 2)[1]}
    for number in range(3):
        net |= {f"{number}.weight": pattern(2, 2), f"{number}.bias": torch.full((2,), 0.1)}
    net |= {"heads.weight": pattern(3, 2).repeat(2, 1, 1), "heads.bias": torch.full((2, 3), 0.1)}
    nets = {
        name: tensor.unsqueeze(0).repeat(3, *(1,) * tensor.ndim) for name, tensor in net.items()
    }
    models = {
        "a.weight": torch.stack([torch.tensor([[1.0, 2.0], [3.0, 4.0]]) * k for k in (1, 2, 3)]),
        "b.weight": torch.stack([torch.tensor([1.0, -1.0]) * k for k in (-1, 0, 1)]),
    }
    state = {f"hypernets.{name}": tensor for name, tensor in nets.items()}
    state |= {f"models.params.{name}": tensor for name, tensor in models.items()}
    step = LayerMixing(hn_lr=1.0, width=2)
    like = ModelState({name: tensor[0] for name, tensor in models.items()}, {})
    start = step.start(state, 1, like)
    shares, _ = layer_shares(run_hypernet(net), 1)
    for row in shares.tolist():
        assert row == pytest.approx([0.25001296176, 0.42621516526, 0.32377187297], abs=1e-7)
    wanted = [2.073758911211925, 4.14751782242385, 6.221276733635774, 8.2950356448477]
    assert start.params["a.weight"].flatten().tolist() == pytest.approx(wanted, rel=1e-6)
    assert start.params["b.weight"].tolist() == pytest.approx([0.0737589112, -0.0737589112])
    ended = ModelState({name: torch.tensor(values) for name, values in ENDS.items()}, {})
    turn = Turn(1, like, like, (1,), FACTS, updates={1: ended})
    after, _ = step.step(state, turn)
    for name, numbers in FL_BENCH.items():
        moved = after[f"hypernets.{name}"][1] - net[name]
        torch.testing.assert_close(moved, torch.tensor(numbers), atol=2e-5, rtol=1e-4)
        assert torch.equal(after[f"hypernets.{name}"][0], net[name])


def model(seed, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a.weight": (3, 2), "a.bias": (3,), "b.0.weight": (2, 3)}
    params = {n: spread * torch.randn(*s, generator=generator) for n, s in shapes.items()}
    return ModelState(params, {"a.count": torch.tensor(seed)})


def state_of(spec, models):
    """Return a server state in which every client has another model."""
    state = dict(spec.begin(models[0], FACTS, None))
    for client, one in enumerate(models):
        for name, tensor in one.params.items():
            state[f"models.params.{name}"][client] = tensor
        for name, tensor in one.buffers.items():
            state[f"models.buffers.{name}"][client] = tensor
    return state


def turn(updates):
    return Turn(1, model(0), model(0), tuple(updates), FACTS, updates=updates)


def distance(one, two):
    return sum(float((one.params[n] - two.params[n]).double().square().sum()) for n in one.params)


@given(st.integers(0, 200), st.integers(0, 2), st.sampled_from(["module", "block"]))
def test_a_small_step_moves_the_mixture_towards_where_training_ended(seed, client, layers):
    spec = LayerMixing(hn_lr=1e-5, width=6, layers=layers)
    models = [model(seed + number) for number in range(3)]
    state = state_of(spec, models)
    end = model(seed + 500)
    before = spec.start(state, client, models[0])
    after, _ = spec.step(state, turn({client: end}))
    # The models as they were: only the weights are to be judged.
    moved = {k: v if k.startswith(HYPERNETS) else state[k] for k, v in after.items()}
    assert distance(spec.start(moved, client, models[0]), end) <= distance(before, end) + 1e-9


def test_layers_do_not_depend_on_the_order_in_which_a_file_lists_them():
    spec = LayerMixing(width=4)
    models = [model(number) for number in range(3)]
    state = state_of(spec, models)
    other = ModelState(dict(reversed(models[0].params.items())), models[0].buffers)
    one, two = (spec.start(state, 1, like) for like in (models[0], other))
    assert all(torch.equal(one.params[name], two.params[name]) for name in one.params)


def test_even_weights_are_the_mean_of_all_models_to_the_bit():
    spec = LayerMixing(hn_lr=0.0, width=4)
    models = [model(number) for number in range(3)]
    state = state_of(spec, models)
    heads = state[f"{HYPERNETS}heads.weight"]
    state[f"{HYPERNETS}heads.weight"] = torch.zeros_like(heads)
    state[f"{HYPERNETS}heads.bias"] = torch.ones_like(state[f"{HYPERNETS}heads.bias"])
    found = spec.start(state, 1, models[0])
    mean = mix(models, [1 / 3] * 3)
    assert all(torch.equal(found.params[name], mean.params[name]) for name in mean.params)
    assert found.buffers["a.count"] == 1


@pytest.mark.parametrize("how", ["kept", "dead"])
def test_a_client_that_mixes_nothing_has_its_own_model(how):
    spec = LayerMixing(width=4, kept_layers=2 if how == "kept" else 0)
    models = [model(number) for number in range(3)]
    state = state_of(spec, models)
    if how == "dead":  # no output is positive
        state[f"{HYPERNETS}heads.weight"] = -state[f"{HYPERNETS}heads.weight"].abs()
    found = spec.start(state, 2, models[0])
    assert all(torch.equal(found.params[n], models[2].params[n]) for n in found.params)
    after, _ = spec.step(state, turn({2: model(9)}))
    before, moved = (select(each, HYPERNETS) for each in (state, after))
    assert all(torch.equal(before[name], moved[name]) for name in before)


@given(st.integers(0, 50))
def test_rows_are_shares(seed):
    outputs = torch.randn(4, 5, generator=torch.Generator().manual_seed(seed)).double()
    shares, _ = layer_shares(outputs, 3)
    assert (shares >= 0).all()
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(4).double())


def test_first_weights_are_near_even_and_only_the_clients_of_a_round_move():
    spec = LayerMixing()
    state = spec.begin(model(0), RunFacts(Task.MULTICLASS, 3, None, 20, 0), None)
    net = {name: tensor[4] for name, tensor in select(state, HYPERNETS).items()}
    shares, _ = layer_shares(run_hypernet(net), 4)
    assert 0.5 / 20 < shares.min() < shares.max() < 1.6 / 20
    small = LayerMixing(width=4, hn_lr=0.1)
    start = state_of(small, [model(number) for number in range(3)])
    after, merged = small.step(start, turn({1: model(7)}))
    assert torch.equal(after["models.params.a.bias"][1], model(7).params["a.bias"])
    for name in start:
        assert torch.equal(after[name][[0, 2]], start[name][[0, 2]])
    assert merged.params.keys() == model(0).params.keys()


def network():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)
    )


def simulate(method, **settings):
    data = toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=4, concentration=0.3, seed=1)
    local = fedbb.LocalConfig(batch_size=4, lr=0.05)
    settings = {"rounds": 3, "participation": 0.5, "local": local, "bootstrap": 0, **settings}
    return fedbb.simulate(data, clients, model=network, method=method, **settings)


def test_runs_resume_and_have_the_same_bits_in_worker_processes(tmp_path):
    method = pfedla(width=8, hn_lr=0.1)
    whole = simulate(method, out=tmp_path / "whole")

    class LeaveError(Exception):
        pass

    def leave(record):
        if record.round == 2:
            raise LeaveError

    with pytest.raises(LeaveError):
        simulate(method, out=tmp_path / "part", progress=leave)
    simulate(method, out=tmp_path / "part", resume=True)
    simulate(method, out=tmp_path / "pool", workers=2)
    records = [
        without_seconds(RunFolder(tmp_path / n).records()) for n in ("whole", "part", "pool")
    ]
    assert records[0] == records[1] == records[2]
    servers = [RunFolder(tmp_path / n).latest().server for n in ("whole", "part", "pool")]
    for name, tensor in servers[0].items():
        assert torch.equal(tensor, servers[1][name])
        assert torch.equal(tensor, servers[2][name])
    assert whole.history[0].scores["test"]


def test_keeping_all_layers_is_local_training(tmp_path):
    plain = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3))
    data = toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=3, concentration=0.3, seed=1)
    one, two = (
        fedbb.simulate(data, clients, model=plain, method=method, rounds=2, bootstrap=0)
        for method in (pfedla(width=4, kept_layers=9), "local")
    )
    assert [r.scores for r in one.history] == [r.scores for r in two.history]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("pfedla")
    method = {"name": "pfedla", "options": {"width": 8}}
    recipe = small_recipe(place, method=method, rounds={"number": 2})
    finish(recipe, place / "run")
    return place / "run"


def test_the_model_of_a_client_can_be_loaded_and_is_scored(run):
    rows = personalize(run)
    assert all(row.shared is None and row.personal is not None for row in rows)
    last = RunFolder(run).latest()
    own = fedbb.load_model(run, client=1)
    start = LayerMixing(width=8).start(select(last.server, "pfedla."), 1, last.state)
    found = own.network.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in start.params.items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy": "masked"}, "LayerMixing of pFedLA needs the figures of single clients"),
        ({"defense": {"rule": "median", "byzantine": 1}}, "compares models that started alike"),
    ],
)
def test_what_needs_one_start_or_sums_is_refused(tmp_path, changes, message):
    recipe = small_recipe(tmp_path, method={"name": "pfedla"}, **changes)
    with pytest.raises(RecipeError, match=message):
        finish(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_values_and_combinations():
    for options in ({"hn_lr": -1.0}, {"width": 0}, {"layers": "tensor"}, {"kept_layers": -1}):
        with pytest.raises(RecipeError, match="pfedla"):
            build_method("pfedla", options)
    with pytest.raises(RecipeError, match=r"pFedLA.FedBB would lose the weighting of FedBB"):
        build_method("pfedla+fedbb", {})
    assert build_method("pfedla+pnb", {}).server
    assert pfedla().server[0].visibility is Visibility.UPDATES


def test_a_norm_is_measured_from_each_clients_own_start(tmp_path):
    defense = fedbb.RoundPolicy(max_norm=1e3)
    plain = simulate(pfedla(width=4, hn_lr=0.1))
    bounded = simulate(pfedla(width=4, hn_lr=0.1), defense=defense)
    assert [r.scores for r in plain.history] == [r.scores for r in bounded.history]
