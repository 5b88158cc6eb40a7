"""Methods whose clients have models of their own, in whole runs: engines, resume, scores, files."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import fedbb
from fedbb.errors import RecipeError, RunError
from fedbb.evaluation.metrics import Scorer, score_multiclass
from fedbb.evaluation.own_models import SCORES_OF, mean_over_clients
from fedbb.methods import Method, build_method, ditto, fedavg, fedper
from fedbb.personal import PERSONAL, KeptEntries
from fedbb.recipes.check import check_recipe
from fedbb.recipes.reader import make_recipe
from fedbb.report.groups import gather, group
from fedbb.report.method_comparison import compare_methods
from fedbb.report.page.tables import report_tables
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.state import replace_entries, select
from helpers.commands import fedbb as command
from helpers.small_run import finish, small_recipe, small_values, without_seconds
from helpers.toy import equal_states, toy_dataset

KEPT = ("local", "fedper", "fedrep", "fedbn")
METHODS = {"local": {}, "fedper": {}, "fedrep": {}, "fedbn": {}, "ditto": {"lam": 0.5}}
ROUNDS = 3


def network():
    size = toy_dataset().train.inputs[0].size
    return nn.Sequential(
        nn.Flatten(), nn.Linear(size, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)
    )


def simulate(name, data=None, **settings):
    data = data or toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=4, concentration=0.3, seed=1)
    method = name if isinstance(name, Method) else build_method(name, METHODS.get(name, {}))
    local = fedbb.LocalConfig(batch_size=4, lr=0.05)
    settings = {"rounds": ROUNDS, "participation": 0.5, "local": local, "bootstrap": 0, **settings}
    return fedbb.simulate(data, clients, model=network, method=method, **settings)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("personal")
    names = (*METHODS, "fedavg")
    return {name: simulate(name, out=place / name, own_test=0.3) for name in names}


def records_of(run):
    return without_seconds(RunFolder(run.folder).records())


def own_states(folder):
    """Return what every client keeps for its personal part after the last round."""
    run = RunFolder(folder)
    rounds = load_checkpoint(run.file("final.safetensors")).state_rounds
    return {
        client: select(run.client_states.load(client, number).tensors, PERSONAL)
        for client, number in sorted(rounds.items())
    }


def equal_tensors(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("name", ["fedper", "ditto"])
def test_the_pool_gives_the_bits_of_the_inline_engine(runs, name, tmp_path):
    check_pool(runs[name], name, tmp_path, workers=2)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("name", METHODS)
def test_any_number_of_workers_gives_the_bits_of_the_inline_engine(runs, name, workers, tmp_path):
    check_pool(runs[name], name, tmp_path, workers)


def check_pool(run, name, place, workers):
    pooled = simulate(name, out=place / "run", own_test=0.3, workers=workers)
    assert pooled.sha256 == run.sha256
    assert records_of(pooled) == records_of(run)
    mine, theirs = own_states(pooled.folder), own_states(run.folder)
    assert mine.keys() == theirs.keys()
    assert all(equal_tensors(mine[client], theirs[client]) for client in mine)
    assert pooled.scores.to_json() == run.scores.to_json()


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("after", [1, 2])
def test_a_run_left_after_a_round_goes_on_to_the_bit(runs, name, after, tmp_path):
    class LeaveError(Exception):
        pass

    def leave(record):
        if record.round == after:
            raise LeaveError

    with pytest.raises(LeaveError):
        simulate(name, out=tmp_path / "part", own_test=0.3, progress=leave)
    resumed = simulate(name, out=tmp_path / "part", own_test=0.3, resume=True)
    assert resumed.sha256 == runs[name].sha256
    assert records_of(resumed) == records_of(runs[name])
    mine, theirs = own_states(resumed.folder), own_states(runs[name].folder)
    assert all(equal_tensors(mine[client], theirs[client]) for client in theirs)
    assert resumed.scores.to_json() == runs[name].scores.to_json()


def test_dittos_shared_run_is_fedavgs(runs):
    assert runs["ditto"].sha256 == runs["fedavg"].sha256
    assert [r.scores for r in runs["ditto"].history] == [r.scores for r in runs["fedavg"].history]


def test_a_method_that_keeps_nothing_is_fedavg():
    plain = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3))
    data = toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=4, concentration=0.3, seed=1)

    class Unchecked(KeptEntries):
        shares_model = True

        def check(self, network):
            """Allow a network without the part."""

    nothing = Method("nothing", personal=Unchecked("batch-norms"))
    results = [
        fedbb.simulate(data, clients, model=plain, method=method, rounds=2, bootstrap=0).sha256
        for method in (nothing, fedavg())
    ]
    assert results[0] == results[1]


def test_what_stays_with_clients_never_moves_at_the_server(runs):
    first = network_state()
    for name in KEPT:
        final = load_checkpoint(runs[name].folder / "final.safetensors").state
        kept = build_method(name, {}).personal.entries(network())
        moved = {
            entry
            for part in (0, 1)
            for entry, tensor in (final.params, final.buffers)[part].items()
            if not torch.equal(tensor, (first.params, first.buffers)[part][entry])
        }
        assert not moved & kept
        assert bool(moved) == (name != "local")


def network_state():
    data = toy_dataset()
    run = next(
        iter(
            fedbb.iter_rounds(
                data,
                fedbb.partition.dirichlet(data, clients=4, concentration=0.3, seed=1),
                model=network,
                method="local",
                rounds=1,
                bootstrap=0,
            )
        )
    )
    names = {name for name, _ in network().named_parameters()}
    return fedbb.records.ModelState(
        {k: v for k, v in run.state.items() if k in names},
        {k: v for k, v in run.state.items() if k not in names},
    )


def test_local_models_depend_on_no_other_client(tmp_path):
    data = toy_dataset()
    owners = np.arange(len(data.train)) % 3
    changed = np.array(data.train.inputs, copy=True)
    changed[owners == 0] += 1.0
    folders = []
    for number, inputs in enumerate((np.asarray(data.train.inputs), changed)):
        part = fedbb.data.Examples(inputs, data.train.labels)
        varied = fedbb.data.Dataset(
            data.name, data.task, data.classes, part, data.test, data.mean, data.std
        )
        clients = fedbb.partition.from_owners(varied, owners)
        folders.append(tmp_path / str(number))
        local = fedbb.LocalConfig(batch_size=4, lr=0.05, augment=False)
        fedbb.simulate(
            varied,
            clients,
            model=network,
            method="local",
            rounds=2,
            local=local,
            bootstrap=0,
            out=folders[-1],
        )
    one, two = (own_states(folder) for folder in folders)
    assert not equal_tensors(one[0], two[0])
    assert equal_tensors(one[1], two[1])
    assert equal_tensors(one[2], two[2])


def test_a_round_is_scored_by_the_models_of_the_clients(runs):
    """Each client's model is put together by hand here, and scored by itself."""
    data = toy_dataset()
    for name in KEPT:
        record = RunFolder(runs[name].folder).records()[-1]
        shared = load_checkpoint(runs[name].folder / "final.safetensors").state
        own, model = own_states(runs[name].folder), network()
        scorer = Scorer(model, data, {"test": data.test})
        accuracies = [
            scorer(replace_entries(shared, own.get(client, {})))["test"].macro["accuracy"]
            for client in range(4)
        ]
        of = record[SCORES_OF]
        assert record["scores"]["test"]["macro"]["accuracy"] == pytest.approx(np.mean(accuracies))
        assert of["std"]["test"]["accuracy"] == pytest.approx(np.std(accuracies, ddof=1))
        assert of["worst"]["test"]["accuracy"] == min(accuracies)
        assert (of["models"], of["clients"], of["trained"]) == ("clients", 4, len(own))
    assert SCORES_OF not in RunFolder(runs["ditto"].folder).records()[-1]


def test_means_over_clients_have_the_published_numbers():
    """Accuracies .9, .5 and .7: mean .7, deviation over clients of n − 1, worst .5."""
    labels = np.arange(10) % 2
    found = []
    for right in (9, 5, 7):
        guesses = np.where(np.arange(10) < right, labels, 1 - labels)
        found.append({"test": score_multiclass(np.eye(2)[guesses], labels)})
    scores = mean_over_clients(found, trained=3)
    assert scores.mean["test"].macro["accuracy"] == pytest.approx(0.7)
    assert scores.std["test"]["accuracy"] == pytest.approx(0.2)
    assert scores.worst["test"]["accuracy"] == 0.5
    single = mean_over_clients(found[:1], trained=0)
    assert single.mean["test"].macro == found[0]["test"].macro
    assert single.std["test"]["accuracy"] == 0.0


def test_sites_are_scored_by_their_own_models(runs):
    shared = {site.client: site.macro["accuracy"] for site in runs["fedavg"].scores.sites}
    own = {site.client: site.macro["accuracy"] for site in runs["local"].scores.sites}
    assert own.keys() == shared.keys()
    assert own != shared
    assert runs["local"].scores.test is None


def test_there_is_no_model_for_all_but_one_of_each_client(runs):
    folder = runs["fedper"].folder
    assert not (folder / "best.safetensors").exists()
    with pytest.raises(RunError, match="no model for all: under FedPer every client has the class"):
        fedbb.load_model(folder, model=network)
    with pytest.raises(RunError, match="no model for all"):
        fedbb.load_model(folder, model=network, best=True)
    with pytest.raises(RunError, match="no model for all"):
        _ = runs["fedper"].model
    for name in METHODS:
        own = own_states(runs[name].folder)
        client = min(own)
        model = fedbb.load_model(runs[name].folder, model=network, client=client)
        state = model.network.state_dict()
        assert all(torch.equal(state[entry], tensor) for entry, tensor in own[client].items())
        for missing in {*range(5)} - own.keys():
            with pytest.raises(RunError, match=f"no model of client {missing}"):
                fedbb.load_model(runs[name].folder, model=network, client=missing)
    with pytest.raises(RunError, match="has no model of client 0: the method leaves none"):
        fedbb.load_model(runs["fedavg"].folder, model=network, client=0)
    assert fedbb.load_model(runs["ditto"].folder, model=network).info.unshared == ""


@pytest.fixture(scope="module")
def recipe_run(tmp_path_factory):
    place = tmp_path_factory.mktemp("recipe")
    recipe = small_recipe(place, method={"name": "fedper"}, rounds={"number": 2})
    finish(recipe, place / "run")
    return place


def test_the_commands_say_what_the_files_hold(recipe_run, monkeypatch):
    def say(*words):
        return command(*words, monkeypatch=monkeypatch)

    run, data = recipe_run / "run", recipe_run / "small.npz"
    shown = " ".join(say("show", run).out.split())
    assert "mean over the clients' own models" in shown
    assert "3 models of clients, balanced accuracy: mean" in shown
    assert "under FedPer every client has the classifier for itself" in shown
    refused = say("predict", run, data)
    assert refused.code == 2
    assert "no model for all" in refused.err
    assert say("predict", run, data, "--client", 1, "--quiet").code == 0
    assert say("refit", run).code == 2
    out = recipe_run / "one.pt"
    assert say("export", run, "--to", "state-dict", "--client", 1, "--out", out).code == 0
    card = say("card", run).out
    assert "every client has the classifier for itself" in card
    assert "means over the 3 clients' own models" in card
    assert 'load_model("run", client=0)' in card
    parts = [compare_methods(one) for one in group(gather([run]).runs)]
    note = report_tables(parts)["final"].note
    assert "Means over the clients' own models" in note
    summary = json.loads((recipe_run / "run" / "summary.json").read_text())
    assert summary[SCORES_OF]["clients"] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluation": {"logit_adjustment": True}}, "logit_adjustment is for one model of all"),
        ({"engine": "central", "data": None}, 'engine = "central" trains one model in one place'),
        (
            {"privacy": "masked", "data": "own test"},
            'privacy = "masked" and data.own_test exclude each other under FedPer',
        ),
    ],
)
def test_settings_that_need_a_model_for_all_are_refused(tmp_path, changes, message):
    values = small_values(tmp_path / "small.npz", method={"name": "fedper"})
    values |= changes
    if values["data"] == "own test":
        values["data"] = small_values(tmp_path / "small.npz")["data"] | {"own_test": 0.2}
    if values["data"] is None:
        values["data"] = {"name": "npz", "path": str(tmp_path / "small.npz")}
    with pytest.raises(RecipeError, match=message):
        check_recipe(make_recipe(values))


@pytest.mark.parametrize("name", ["fedper", "ditto"])
def test_a_private_run_is_the_open_run_to_fixed_point_error(name):
    plain, private = (
        next(reversed(list(rounds_of(name, privacy)))) for privacy in ("none", "masked")
    )
    for entry, tensor in plain.state.items():
        if tensor.is_floating_point():  # counters are not summed
            torch.testing.assert_close(private.state[entry], tensor, atol=2e-3, rtol=0)
    gap = plain.scores["test"]["auroc"] - private.scores["test"]["auroc"]
    assert abs(gap) < 0.05


def rounds_of(name, privacy):
    data = toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=3, concentration=0.5, seed=1)
    local = fedbb.LocalConfig(batch_size=4, lr=0.05)
    return fedbb.iter_rounds(
        data,
        clients,
        model=network,
        method=name,
        rounds=2,
        local=local,
        bootstrap=0,
        privacy=privacy,
    )


def test_what_stays_is_an_exact_zero_in_a_private_sum():
    *_, last = rounds_of("fedper", "masked")
    *_, alone = rounds_of("local", "none")
    kept = KeptEntries("head").entries(network())
    assert all(torch.equal(last.state[entry], alone.state[entry]) for entry in kept)


def test_a_strong_pull_is_noted(tmp_path):
    recipe = small_recipe(
        tmp_path, method={"name": "ditto", "options": {"lam": 25.0}}, rounds={"number": 1}
    )
    finish(recipe, tmp_path / "run")
    (note,) = RunFolder(tmp_path / "run").read_json("federation.json")["notes"]
    assert "lam 25 times local.lr 0.05 is 1.25" in note


def test_personal_methods_combine_with_a_balanced_loss():
    run = simulate("fedper+fedbb", rounds=2)
    assert run.sha256 != simulate("fedper", rounds=2).sha256
    assert equal_states(*(_shared(simulate(m, rounds=2)) for m in (ditto(), ditto(lam=0.0))))
    assert fedper().needs.keeps == "personal"


def _shared(run):
    state = run.model.state_dict()
    return fedbb.records.ModelState(state, {})
