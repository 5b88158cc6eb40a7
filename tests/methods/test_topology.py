"""Rounds without a server: graphs, weights of neighbourhoods, and what runs reduce to."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedbb
from fedbb.aggregation.merging import BySamples, ClientBalanced
from fedbb.aggregation.server_step import Turn
from fedbb.errors import RecipeError, RunError
from fedbb.methods import Method, build_method, fedavg
from fedbb.methods.topology import NeighbourAveraging, make_graph, with_topology
from fedbb.recipes.check import check_recipe
from fedbb.records import ClientInfo, ModelState, RunFacts, Task
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from fedbb.state import digest, unflatten_state
from helpers.commands import fedbb as command
from helpers.flower_loopback import flower_run, take_identity
from helpers.small_run import finish, small_recipe, without_seconds
from helpers.toy import toy_dataset, toy_network

SKEW = {"kind": "label-skew", "clients": 4, "concentration": 1.0, "min_samples": 4}


def recipe_of(folder, method="fedbb", clients=4, **changes):
    rounds = {"number": 3, **changes.pop("rounds", {})}
    data = {"name": "npz", "path": str(folder / "small.npz"), "partition": SKEW}
    data["partition"] = {**SKEW, "clients": clients}
    return small_recipe(folder, method={"name": method}, rounds=rounds, data=data, **changes)


def models_of(folder, number=3):
    """Return the models of all clients after a round."""
    path = folder / "checkpoints" / f"round-{number:06d}.safetensors"
    server = load_checkpoint(path).server
    rows = {n.removeprefix("neighbours.models."): t for n, t in server.items()}
    clients = len(next(iter(rows.values())))
    return [unflatten_state({n: t[k] for n, t in rows.items()}) for k in range(clients)]


@given(st.integers(2, 14), st.data())
def test_a_random_graph_is_regular_symmetric_and_follows_from_its_seed(clients, data):
    degrees = [d for d in range(clients) if d * clients % 2 == 0]
    degree, seed = data.draw(st.sampled_from(degrees)), data.draw(st.integers(0, 5))
    graph = make_graph("random", clients, degree, seed)
    assert graph == make_graph.__wrapped__("random", clients, degree, seed)
    for client, near in enumerate(graph):
        assert len(set(near)) == degree
        assert client not in near
        assert all(client in graph[other] for other in near)


def test_seeds_give_different_graphs_and_a_full_degree_the_complete_one():
    graphs = {make_graph("random", 10, 3, seed) for seed in range(8)}
    assert len(graphs) > 4
    assert make_graph("random", 6, 5, 0) == make_graph("complete", 6, None, 0)
    assert make_graph("ring", 5, None, 0)[0] == (1, 4)
    assert make_graph("ring", 2, None, 0) == ((1,), (0,))
    assert make_graph("ring", 1, None, 0) == ((),)
    for degree in (5, 3):
        with pytest.raises(RecipeError, match=f"degree = {degree} is not possible with 5 clients"):
            make_graph("random", 5, degree, 0)


INFOS = st.lists(st.tuples(st.integers(1, 1000), st.floats(0.0, 1.0)), min_size=3, max_size=9).map(
    lambda rows: tuple(ClientInfo(k, n, r) for k, (n, r) in enumerate(rows))
)


@given(
    INFOS, st.sampled_from([BySamples(), ClientBalanced(), ClientBalanced(gamma=0.5)]), st.data()
)
def test_the_weights_of_any_neighbourhood_sum_to_one(infos, weighting, data):
    step = NeighbourAveraging("ring", weighting=weighting, max_weight=data.draw(st.floats(0.1, 1)))
    graph = make_graph("ring", len(infos), None, 0)
    for client, near in enumerate(graph):
        others = data.draw(st.sets(st.sampled_from(near)))
        weights = step.weights(tuple(sorted((client, *near))), infos, {client, *others})
        assert weights.keys() == {client, *others}
        assert math.fsum(weights.values()) == pytest.approx(1.0, abs=1e-12)
        assert min(weights.values()) >= 0


def test_cbr_weighs_neighbours_by_what_they_declare_to_each_other():
    # Clients 0, 1, 2 have R = 0.1, 0.2, 0.4: 1/R = 10, 5, 2.5; client 3 is not a neighbour of 1.
    spreads = (0.1, 0.2, 0.4, 0.001)
    infos = tuple(ClientInfo(k, 10, spread) for k, spread in enumerate(spreads))
    weights = NeighbourAveraging("ring", weighting=ClientBalanced()).weights(
        (0, 1, 2), infos, infos_of(3)
    )
    assert [weights[k] for k in range(3)] == pytest.approx([4 / 7, 2 / 7, 1 / 7])


def infos_of(number):
    return dict.fromkeys(range(number))


def test_one_exchange_on_a_ring_worked_out_by_hand():
    # Models 0, 4, 8, 12 of clients with 1, 1, 2, 4 samples; client 2 does not take part.
    infos = tuple(ClientInfo(k, n) for k, n in enumerate((1, 1, 2, 4)))
    facts = RunFacts(Task.MULTICLASS, 2, None, clients=4, seed=0)
    step, first = NeighbourAveraging("ring"), ModelState({"w": torch.tensor([100.0])}, {})
    state = step.begin(first, facts, None)
    updates = {k: ModelState({"w": torch.tensor([4.0 * k])}, {}) for k in (0, 1, 3)}
    turn = Turn(1, first, first, (0, 1, 3), facts, updates=updates, infos=infos)
    state, mean = step.step(state, turn)
    # Client 0 averages 0 (1), 4 (1) and 12 (4): 52/6. Client 1: 0 and 4. Client 3: 0 (1), 12 (4).
    expected = [52 / 6, 2.0, 100.0, 9.6]
    assert state["models.params.w"].flatten().tolist() == pytest.approx(expected)
    assert mean.params["w"].item() == pytest.approx(sum(expected) / 4)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("topology")
    kinds = {
        "server": {},
        "complete": {"topology": "complete"},
        "ring": {"topology": "ring"},
        "none": {"topology": "random", "degree": 0},
        "random": {"topology": "random", "degree": 3},
    }
    found = {}
    for name, rounds in kinds.items():
        summary, records = finish(recipe_of(place, rounds=rounds), place / name)
        found[name] = place / name, summary, records
    return found


def test_the_complete_graph_is_the_round_of_a_server(runs):
    server = load_checkpoint(runs["server"][0] / "final.safetensors").state
    assert {digest(model) for model in models_of(runs["complete"][0])} == {digest(server)}
    assert runs["complete"][1]["sha256"] == runs["server"][1]["sha256"]
    for ours, theirs in zip(runs["complete"][2], runs["server"][2], strict=True):
        assert ours["scores"]["test"]["macro"] == pytest.approx(theirs["scores"]["test"]["macro"])
        assert ours["scores_of"]["consensus_distance"] == 0.0
        assert ours["clients"] == theirs["clients"]


@pytest.mark.parametrize("method", ["fedavg", "moon+fedbb", "fedprox+cbr"])
def test_the_complete_graph_is_the_round_of_a_server_for_other_methods(tmp_path, method):
    plain, _ = finish(recipe_of(tmp_path, method), tmp_path / "server")
    graph, _ = finish(
        recipe_of(tmp_path, method, rounds={"topology": "complete"}), tmp_path / "graph"
    )
    assert graph["sha256"] == plain["sha256"]


def test_a_graph_without_edges_is_local_training(runs, tmp_path):
    own = recipe_of(tmp_path, "local+fedbb")
    finish(own, tmp_path / "local")
    last = RunFolder(tmp_path / "local").latest()
    models = models_of(runs["none"][0])
    for client, model in enumerate(models):
        kept = RunFolder(tmp_path / "local").client_states.load(client, last.state_rounds[client])
        for name, tensor in {**model.params, **model.buffers}.items():
            assert torch.equal(kept.tensors[f"personal.{name}"], tensor)
    assert len({digest(model) for model in models}) == 4


def test_the_final_file_is_the_mean_of_the_clients_models_and_the_record_their_distance(runs):
    path, summary, records = runs["ring"]
    models = models_of(path)
    final = load_checkpoint(path / "final.safetensors").state
    squares = 0.0
    for name, tensor in final.params.items():
        stacked = torch.stack([model.params[name].double() for model in models])
        assert torch.allclose(stacked.mean(0), tensor.double(), atol=1e-7)
        squares += float((stacked - tensor.double()).square().sum())
    told = records[-1]["scores_of"]["consensus_distance"]
    assert told == pytest.approx(math.sqrt(squares / 4), rel=1e-9)
    assert told > 0
    assert summary["scores_of"]["consensus_distance"] == told
    apart = [runs[n][2][-1]["scores_of"]["consensus_distance"] for n in ("random", "ring", "none")]
    assert apart[0] < apart[1] < apart[2]  # the more neighbours, the nearer; 3 of 4 are all


def test_more_neighbours_than_a_ring_of_four_has_is_the_complete_graph(runs):
    assert runs["random"][1]["sha256"] == runs["complete"][1]["sha256"]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_pool_gives_the_bits_of_the_inline_engine(runs, tmp_path, workers):
    recipe = recipe_of(tmp_path, rounds={"topology": "ring"}, engine="pool")
    summary, records = finish(recipe, tmp_path / "run", workers=workers)
    assert summary["sha256"] == runs["ring"][1]["sha256"]
    assert without_seconds(records) == without_seconds(runs["ring"][2])


@pytest.mark.parametrize("after", [1, 2])
def test_a_run_left_after_any_round_goes_on_to_the_bit(runs, tmp_path, after):
    recipe = recipe_of(tmp_path, rounds={"topology": "ring"})
    records = run(recipe, tmp_path / "part")
    for _ in range(after):
        next(records)
    records.close()
    summary, _ = finish(recipe, tmp_path / "part", resume=True)
    assert summary == runs["ring"][1]
    kept = [RunFolder(path).records() for path in (tmp_path / "part", runs["ring"][0])]
    assert without_seconds(kept[0]) == without_seconds(kept[1])


def test_who_does_not_take_part_keeps_its_model(tmp_path):
    rounds = {"topology": "ring", "participation": 0.5, "number": 2}
    finish(recipe_of(tmp_path, rounds=rounds), tmp_path / "run")
    first, second = (models_of(tmp_path / "run", number) for number in (1, 2))
    chosen = {c["client"] for c in RunFolder(tmp_path / "run").records()[1]["clients"]}
    for client in range(4):
        same = digest(first[client]) == digest(second[client])
        assert same == (client not in chosen)


def test_a_client_s_model_can_be_loaded_and_no_other(runs, monkeypatch):
    path = runs["ring"][0]
    model = fedbb.load_model(path, client=2)
    wanted = models_of(path)[2]
    held = model.state_dict()
    assert any(torch.equal(t, wanted.params[next(iter(wanted.params))]) for t in held.values())
    with pytest.raises(RunError, match="every client has a model of its own"):
        fedbb.load_model(path)
    assert "distance from their mean" in command("show", path, monkeypatch=monkeypatch).out


def test_from_python(tmp_path):
    data = toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=4, concentration=1.0, seed=1)
    schedule = fedbb.Schedule(number=2, topology="random", degree=2, graph_seed=3)
    results = [
        fedbb.simulate(data, clients, model=toy_network, method=m, rounds=schedule, workers=n)
        for m, n in ((fedavg(), 0), (Method("mine"), 2))
    ]
    assert results[0].sha256 == results[1].sha256
    ring = fedbb.simulate(
        data, clients, model=toy_network, method=fedavg(), rounds=fedbb.Schedule(2, topology="ring")
    )
    # With four clients a graph of degree 2 is one of three rings.
    same = make_graph("random", 4, 2, 3) == make_graph("ring", 4, None, 0)
    assert (ring.sha256 == results[0].sha256) == same


UNSUITED = {
    "fedadam": "AdaptiveOptimizer of FedAdam: it is a step of a server",
    "scaffold": "ServerControl of SCAFFOLD: it is a step of a server",
    "fednova": "normalized_average of FedNova: it joins changes of one common model",
    "fedper": "KeptEntries of FedPer: every client keeps its whole model anyway",
    "ditto": "OwnModel of Ditto: every client keeps",
    "fedopt-sca": "Sparse of FedOpt-SCA: what it sends is a change of a model",
    "fedvc": "VirtualClients of FedVC: nobody knows the sizes of all clients",
}


@pytest.mark.parametrize("name", UNSUITED)
def test_a_part_that_needs_a_server_is_refused_by_its_name(tmp_path, name):
    with pytest.raises(RecipeError, match=UNSUITED[name]):
        check_recipe(recipe_of(tmp_path, name, rounds={"topology": "ring"}))
    with pytest.raises(RecipeError, match=UNSUITED[name]):
        with_topology(build_method(name, {}), "ring")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": {"degree": 2}}, r'rounds.degree needs rounds.topology = "random"'),
        ({"rounds": {"topology": "ring", "graph_seed": 2}}, "rounds.graph_seed needs"),
        ({"rounds": {"topology": "random"}}, "needs rounds.degree"),
        ({"rounds": {"topology": "random", "degree": 4}}, "degree = 4 is not possible with 4"),
        ({"rounds": {"topology": "ring"}, "privacy": "masked"}, "exclude each other: secure sums"),
        (
            {"rounds": {"topology": "ring"}, "defense": {"rule": "median", "byzantine": 1}},
            "exclude each other: the rule",
        ),
        (
            {"rounds": {"topology": "ring"}, "evaluation": {"logit_adjustment": True}},
            "is for one model of all clients",
        ),
    ],
)
def test_settings_that_contradict_a_topology_are_refused(tmp_path, changes, message):
    with pytest.raises(RecipeError, match=message):
        check_recipe(recipe_of(tmp_path, **changes))


def test_flower_has_a_server(tmp_path, monkeypatch):
    take_identity(monkeypatch)
    recipe = recipe_of(tmp_path, rounds={"topology": "ring"}, clients=3)
    with pytest.raises(RunError, match=r"rounds.topology is for simulations"):
        flower_run(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()
