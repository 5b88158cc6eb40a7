"""Clients with different networks, where no model is shared: engines, resume, scores, refusals."""

from functools import partial

import pytest
import torch
from torch import nn

import fedbb
from fedbb.errors import RecipeError
from fedbb.methods import Method, build_method, fedmd, local, rhfl
from fedbb.personal import PERSONAL
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import make_recipe
from fedbb.report.groups import settings_of
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.state import select
from helpers.commands import fedbb as command
from helpers.kept_runs import ROUNDS, SIZE, kept, same, simulate_toy, wide
from helpers.small_run import finish, small_recipe, small_values, without_seconds
from helpers.toy import toy_dataset

METHODS = {
    "local": local,
    "fedmd": partial(fedmd, batch_size=8),
    "rhfl": partial(rhfl, batch_size=8),
    "rhfl-equal": partial(rhfl, batch_size=8, confidence="equal"),
}


def narrow():
    return nn.Sequential(nn.Flatten(), nn.Linear(SIZE, 3))


def simulate(method, models=(wide, narrow), **options):
    return simulate_toy(method, models, **options)


def same_run(one, two):
    """Tell whether two runs have the same records, server states and clients."""
    records = [without_seconds(RunFolder(path).records()) for path in (one, two)]
    (server, clients), (other, others) = kept(one), kept(two)
    return (
        records[0] == records[1]
        and same(server, other)
        and clients.keys() == others.keys()
        and all(same(clients[k], others[k]) for k in clients)
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the folder of the inline run of a method, made once."""
    found = {}

    def run(name):
        if name not in found:
            out = tmp_path_factory.mktemp(name) / "whole"
            simulate(METHODS[name](), participation=0.75, own_test=0.3, out=out)
            found[name] = out
        return found[name]

    return run


def test_clients_take_the_networks_in_turn(whole):
    _, clients = kept(whole("fedmd"))
    for client, tensors in clients.items():
        network = (wide, narrow)[client % 2]()
        own = select(tensors, PERSONAL)
        assert {name: t.shape for name, t in own.items()} == {
            name: t.shape for name, t in network.state_dict().items()
        }
    assert not load_checkpoint(whole("fedmd") / "final.safetensors").state.params


@pytest.mark.parametrize(
    "name", ["rhfl", *(pytest.param(one, marks=pytest.mark.slow) for one in ("local", "fedmd"))]
)
def test_one_network_in_turn_trains_the_clients_of_one_network_for_all(tmp_path, name):
    """Where the networks are equal, nothing but the missing model in the messages differs."""
    simulate(METHODS[name](), (wide, wide), out=tmp_path / "turn")
    simulate(METHODS[name](), wide, out=tmp_path / "all")
    ours, theirs = kept(tmp_path / "turn"), kept(tmp_path / "all")
    assert same(ours[0], theirs[0])
    assert all(same(ours[1][k], theirs[1][k]) for k in theirs[1])
    scores = [
        [record["scores"] for record in RunFolder(tmp_path / one).records()]
        for one in ("turn", "all")
    ]
    assert scores[0] == scores[1]


def test_a_client_alone_is_that_of_its_network(tmp_path):
    """Client 1 has the second network, in a run of `local` whatever the others have."""
    simulate(local(), (wide, narrow), out=tmp_path / "two")
    simulate(local(), narrow, out=tmp_path / "one")
    assert same(kept(tmp_path / "two")[1][1], kept(tmp_path / "one")[1][1])


def test_the_mean_table_is_that_of_the_clients_models(tmp_path):
    simulate(fedmd(), out=tmp_path / "run")
    server, clients = kept(tmp_path / "run")
    inputs = torch.from_numpy(toy_dataset().test.inputs)
    tables = []
    for client, tensors in clients.items():
        network = (wide, narrow)[client % 2]().eval()
        network.load_state_dict(select(tensors, PERSONAL))
        with torch.no_grad():
            tables.append(network(inputs))
    assert torch.allclose(server["consensus.table"], torch.stack(tables).mean(dim=0), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("name", METHODS)
def test_the_pool_gives_the_bits_of_the_inline_engine(whole, tmp_path, name, workers):
    out = tmp_path / "pool"
    simulate(METHODS[name](), participation=0.75, own_test=0.3, out=out, workers=workers)
    assert same_run(out, whole(name))
    scores = [RunFolder(path).read_json("scores.json")["final"] for path in (out, whole(name))]
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("name", "after"), [("rhfl", 1), pytest.param("fedmd", 2, marks=pytest.mark.slow)]
)
def test_a_run_left_after_any_round_goes_on_to_the_bit(whole, tmp_path, name, after):
    class LeaveError(Exception):
        pass

    def leave(record):
        if record.round == after:
            raise LeaveError

    out = tmp_path / "part"
    run = partial(simulate, METHODS[name](), participation=0.75, own_test=0.3, out=out)
    with pytest.raises(LeaveError):
        run(progress=leave)
    run(resume=True)
    assert same_run(out, whole(name))


def test_a_resume_with_other_networks_is_refused(whole):
    run = partial(simulate, fedmd(batch_size=8), participation=0.75, own_test=0.3)
    with pytest.raises(fedbb.errors.RunError, match=r"model\.by_client"):
        run((narrow, wide), out=whole("fedmd"), resume=True)


def test_the_model_of_a_client_is_one_of_its_network(whole):
    inputs = toy_dataset().test.inputs
    for client in kept(whole("fedmd"))[1]:
        network = (wide, narrow)[client % 2]
        model = fedbb.load_model(whole("fedmd"), model=network, client=client)
        assert model.predict(inputs).shape == (len(inputs), 3)
        other = (wide, narrow)[(client + 1) % 2]
        with pytest.raises(fedbb.errors.RunError, match="does not fit its network"):
            fedbb.load_model(whole("fedmd"), model=other, client=client)


def test_personalize_scores_and_adapts_each_clients_own_network(whole):
    data = toy_dataset()
    division = fedbb.partition.dirichlet(data, clients=4, concentration=0.5, seed=1)
    method = METHODS["local"]()
    parts = (data, division, [wide, narrow], method)
    with pytest.raises(fedbb.errors.RunError, match="this is not the data of the run"):
        fedbb.personalize(whole("local"), *parts, workers=0)
    public = data.test.inputs
    found = fedbb.personalize(whole("local"), *parts, public=public, alone=True, workers=0)
    sites = RunFolder(whole("local")).read_json("scores.json")["final"]["sites"]
    assert {one.client: one.personal for one in found if one.tested} == {
        site["client"]: site["macro"]["accuracy"] for site in sites
    }
    assert all(one.shared is None and one.alone is not None for one in found)


@pytest.mark.slow
def test_a_private_run_is_the_open_one_to_fixed_point_error(tmp_path):
    tables = []
    for privacy in ("none", "masked"):
        simulate(fedmd(batch_size=8), clients=3, privacy=privacy, out=tmp_path / privacy)
        last = f"round-{ROUNDS:06d}.safetensors"
        server = load_checkpoint(tmp_path / privacy / "checkpoints" / last).server
        tables.append(server["consensus.table"])
    torch.testing.assert_close(*tables, atol=2e-3, rtol=0)


def recipe_of(tmp_path, **changes):
    data = {
        "name": "npz",
        "path": str(tmp_path / "small.npz"),
        "partition": {"kind": "even", "clients": 3},
        "public": {"images": 12},
    }
    networks = ["linear", {"name": "mlp", "options": {"hidden": [6]}}]
    values = {"data": data, "method": {"name": "fedmd"}, "model": {"by_client": networks}}
    return small_recipe(tmp_path, **{**values, "rounds": {"number": 2}, **changes})


def test_a_recipe_names_the_networks(tmp_path, monkeypatch):
    finish(recipe_of(tmp_path), tmp_path / "run")
    for client, parameters in enumerate((2, 4, 2)):
        model = fedbb.load_model(tmp_path / "run", client=client)
        assert len(list(model.network.parameters())) == parameters
    settings = settings_of(recipe_of(tmp_path))
    assert settings["model.by_client"] == "linear, mlp (hidden = [6])"
    assert "model.name" not in settings
    for words in (("show",), ("card",), ("predict",), ("personalize", "--alone", "--quiet")):
        more = (tmp_path / "small.npz", "--client", 1, "--quiet") if words == ("predict",) else ()
        done = command(words[0], tmp_path / "run", *more, *words[1:], monkeypatch=monkeypatch)
        assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": {"name": "fedavg"}}, "the merge of models of FedAvg needs models of one form"),
        ({"method": {"name": "fedper"}}, "the merge of models of FedPer needs"),
        ({"method": {"name": "feddf"}}, "the merge of models of FedDF needs"),
        ({"method": {"name": "pfedla"}}, "the merge of models of pFedLA needs"),
        ({"defense": {"max_norm": 1.0}}, "defense.rule and defense.max_norm look at models"),
        (
            {"model": {"by_client": ["linear"], "weights": "a.pt"}},
            "model.weights is for one network of all clients",
        ),
        (
            {"model": {"by_client": ["linear"], "name": "lenet"}},
            "model.name = 'lenet' has no effect beside model.by_client, which names linear",
        ),
        ({"model": {"by_client": ["linaer"]}}, "model.name 'linaer' is unknown"),
        ({"model": {"by_client": [3]}}, "an entry is the name of a network, or a table with name"),
        ({"rounds": {"number": 1, "topology": "ring"}}, "topology.*Consensus of FedMD"),
    ],
)
def test_what_needs_one_network_is_refused(tmp_path, changes, message):
    values = small_values(tmp_path / "small.npz", method={"name": "fedmd"})
    values["data"] = values["data"] | {"public": {"images": 12}}
    values["model"] = {"by_client": ["linear", "mlp"]}
    with pytest.raises(RecipeError, match=message):
        check_recipe(make_recipe(values | changes))


def test_an_empty_list_of_networks_is_refused():
    with pytest.raises(RecipeError, match="model is an empty list"):
        simulate(fedmd(), ())


def test_a_part_that_reads_models_refuses_different_networks():
    part = build_method("fedopt-sca", {}).compression
    method = Method("mine", personal=local().personal, compression=part)
    with pytest.raises(RecipeError, match="Sparse of mine needs models of one form"):
        simulate(method)


def test_a_statistic_of_a_models_form_refuses_different_networks():
    found = build_method("scaffold", {}).statistics
    method = Method("mine", personal=local().personal, statistics=found)
    with pytest.raises(RecipeError, match="ControlChange of mine has the form of a model"):
        simulate(method)
