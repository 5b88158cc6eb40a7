"""Methods against class imbalance in whole runs: engines, resume, and what they reduce to."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

import fedbb
from fedbb.errors import RecipeError
from fedbb.methods import BALANCING, BASES, HEADS, build_method
from fedbb.methods import METHODS as ALL_METHODS
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from helpers.cover import few
from helpers.small_run import without_seconds
from helpers.suited_settings import can_be_built
from helpers.toy import drop_rows, equal_states, toy_dataset

CREFF = {"features": 4, "steps": 3, "epochs": 2}
METHODS = {
    "bsm": {},
    "fedrs": {},
    "fedir": {},
    "fedvc": {"size": 6},
    "feddecorr": {},
    "fed-rod": {},
    "climb": {},
    "creff": CREFF,
    "ccvr": {"features": 8, "epochs": 2},
    "fedavg+lda-head": {},
    "fedlc+ridge-head": {"ridge-head": {"blend": 0.5, "every": 2}},
    "fedprox+fedbb+means-head": {"means-head": {"restart": True}},
}
SERVER = {
    "fedavgm": {},
    "fedadam": {"lr": 0.01},
    "fedyogi": {"lr": 0.01},
    "fedadagrad": {"lr": 0.01},
    "scaffold": {},
    "feddyn": {},
}
ROUNDS = 2


def network():
    size = toy_dataset().train.inputs[0].size
    return nn.Sequential(
        nn.Flatten(), nn.Linear(size, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)
    )


def simulate(name, options=None, **settings):
    data = toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=4, concentration=0.3, seed=1)
    chosen = (METHODS | SERVER).get(name, {}) if options is None else options
    settings = {"rounds": ROUNDS, "local": fedbb.LocalConfig(batch_size=4, lr=0.05), **settings}
    method = build_method(name, chosen)
    return fedbb.simulate(data, clients, model=network, method=method, **settings)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("imbalance")
    names = (*METHODS, "fedavg", "fedlc")
    return {name: simulate(name, out=place / name.replace("+", "-")) for name in names}


def trained(run, number=ROUNDS):
    """Return the model from which the next round starts, which need not be the served one."""
    return load_checkpoint(run.folder / "checkpoints" / f"round-{number:06d}.safetensors").state


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_a_result_of_its_own(runs, name):
    others = [run.sha256 for other, run in runs.items() if other != name]
    # Fed-ROD's shared model is that of the balanced softmax.
    assert (runs[name].sha256 in others) == (name in ("bsm", "fed-rod"))


@pytest.mark.parametrize("name", ["fedir", "climb", "creff", "fed-rod", "fedlc+ridge-head"])
def test_the_pool_gives_the_bits_of_the_inline_engine(runs, name):
    pooled = simulate(name, workers=2)
    assert pooled.sha256 == runs[name].sha256
    assert [record.scores for record in pooled.history] == [r.scores for r in runs[name].history]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("name", METHODS)
def test_any_number_of_workers_gives_the_bits_of_the_inline_engine(runs, name, workers):
    assert simulate(name, workers=workers).sha256 == runs[name].sha256


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVER)
def test_methods_with_a_server_state_have_one_result_on_any_number_of_workers(name):
    plain = simulate("fedavg").sha256
    results = {simulate(name, workers=workers).sha256 for workers in (0, 1, 2, 3)}
    assert len(results) == 1
    assert plain not in results


@pytest.mark.parametrize("name", few(METHODS, 5))
def test_a_run_left_after_a_round_goes_on_to_the_bit(runs, name, tmp_path):
    class LeaveError(Exception):
        pass

    def leave(record):
        raise LeaveError

    with pytest.raises(LeaveError):
        simulate(name, out=tmp_path / "part", progress=leave)
    resumed = simulate(name, out=tmp_path / "part", resume=True)
    assert resumed.sha256 == runs[name].sha256
    records = [RunFolder(path).records() for path in (tmp_path / "part", runs[name].folder)]
    assert without_seconds(records[0]) == without_seconds(records[1])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedrs", {"alpha": 1.0}),
        ("feddecorr", {"beta": 0.0}),
        ("climb", {"lr": 0.0}),
        ("climb", {"tolerance": 1e3}),
        ("creff", {**CREFF, "epochs": 0}),
        ("ccvr", {"epochs": 0}),
        ("ccvr", {"features": 0}),
        ("fedavg+lda-head", {"lda-head": {"blend": 0.0}}),
        ("fedavg+ridge-head", {"ridge-head": {"blend": 0.0, "restart": True}}),
        ("fedavg+lda-head", {"lda-head": {"every": ROUNDS + 1}}),
    ],
)
def test_a_setting_without_effect_is_fedavg_to_the_bit(runs, name, options):
    assert simulate(name, options).sha256 == runs["fedavg"].sha256


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("creff", "fedavg"),
        ("ccvr", "fedavg"),
        ("fedavg+lda-head", "fedavg"),
        ("fedlc+ridge-head", "fedlc"),
        ("fed-rod", "bsm"),
    ],
)
def test_the_trained_model_is_that_of_the_base_in_every_round(runs, name, like):
    for number in range(1, ROUNDS + 1):
        assert equal_states(trained(runs[name], number), trained(runs[like], number))


def test_a_restart_trains_on_from_the_new_classifier(runs):
    plain = simulate("fedprox+fedbb", {})
    restarted = simulate("fedprox+fedbb+means-head", rounds=1)
    assert restarted.sha256 != simulate("fedprox+fedbb", {}, rounds=1).sha256
    assert plain.sha256 != runs["fedprox+fedbb+means-head"].sha256
    once = simulate("fedavg+lda-head", {"lda-head": {"restart": True}}, rounds=1)
    assert once.sha256 == simulate("fedavg+lda-head", rounds=1).sha256


def test_between_two_classifiers_the_trained_one_is_served(runs):
    every_second = runs["fedlc+ridge-head"].history
    assert every_second[0].scores == runs["fedlc"].history[0].scores
    assert every_second[1].scores != runs["fedlc"].history[1].scores


def test_the_served_classifier_is_that_of_the_clients_of_the_last_round(runs):
    data = toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=4, concentration=0.3, seed=1)
    fitted = fedbb.fit_classifier(runs["fedavg"].model, data, clients)
    served = runs["fedavg+lda-head"].model
    for name, tensor in served.state_dict().items():
        torch.testing.assert_close(tensor, fitted.state_dict()[name], rtol=1e-4, atol=1e-6)


def test_fedir_on_equal_mixtures_is_fedavg_to_the_bit():
    data = toy_dataset()
    rows = [row for c in range(3) for row in np.flatnonzero(data.train.labels == c)[:8]]
    data = drop_rows(data, rows)  # eight of each class, one of four of them to the first client
    clients = fedbb.partition.from_owners(data, np.tile([0, 1, 1, 1], 6))
    local = fedbb.LocalConfig(batch_size=4, lr=0.05)
    fedir, fedavg = (
        fedbb.simulate(data, clients, model=network, method=name, local=local, rounds=2)
        for name in ("fedir", "fedavg")
    )
    assert fedir.sha256 == fedavg.sha256


@pytest.mark.parametrize("name", ["climb", "creff", "ccvr", "fedavg+lda-head", "fedir", "fed-rod"])
def test_a_client_of_one_sample_takes_part(name):
    data = toy_dataset()
    plain = nn.Sequential(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 3))
    clients = fedbb.partition.from_owners(data, np.minimum(np.arange(len(data.train)), 2))
    run = fedbb.simulate(
        data, clients, model=plain, method=build_method(name, METHODS[name]), rounds=2, bootstrap=0
    )
    assert [client["client"] for client in run.history[1].clients] == [0, 1, 2]
    assert not run.history[1].absent


def test_personal_heads_of_disjoint_classes_are_not_below_the_shared_model(tmp_path):
    data = toy_dataset(train=90, test=60)
    clients = fedbb.partition.from_owners(data, (data.train.labels == 2).astype(int))
    local = fedbb.LocalConfig(batch_size=8, lr=0.05, epochs=3)
    run = fedbb.simulate(
        data, clients, model="linear", method="fed-rod", local=local, rounds=4, out=tmp_path / "run"
    )
    weight, bias = (p.detach() for p in run.model.parameters())
    states = [RunFolder(run.folder).client_states.load(client, 4).tensors for client in range(2)]
    inputs = torch.from_numpy(data.test.inputs).flatten(1)
    gains = []
    for client, kept in enumerate(states):
        own = np.isin(data.test.labels, [2] if client else [0, 1])
        shared = inputs @ weight.T + bias
        head_weight, head_bias = (kept[f"personal-head.{name}"] for name in ("weight", "bias"))
        personal = shared + inputs @ head_weight.T + head_bias
        right = [(z.argmax(1).numpy() == data.test.labels)[own].mean() for z in (shared, personal)]
        gains.append(right[1] - right[0])
    assert min(gains) >= 0
    assert max(gains) > 0.1


def test_virtual_clients_take_equal_steps(runs):
    steps = {client["steps"] for record in runs["fedvc"].history for client in record.clients}
    weights = [client["weight"] for client in runs["fedvc"].history[0].clients]
    assert steps == {2}  # six samples in batches of four
    assert weights == pytest.approx([0.25] * 4)


def test_climb_gives_the_client_with_the_largest_loss_more_weight(runs):
    first, second = (
        {client["client"]: client["weight"] for client in record.clients}
        for record in runs["climb"].history
    )
    plain = {client["client"]: client["weight"] for client in runs["fedavg"].history[0].clients}
    assert first == plain
    assert sum(second.values()) == pytest.approx(1)
    assert second != plain


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("creff+lda-head", "CReFF.LDA would serve two classifiers, FederatedFeatures's and"),
        ("ccvr+fedbb+ridge-head", "would serve two classifiers, VirtualFeatures's"),
        ("lda-head", "'lda-head' is added to a method, as in fedavg.lda-head"),
        ("fedavg+lda", "a further . may add lda-head, ridge-head, means-head"),
        ("fedlc+moon+lda-head", "is unknown; allowed before"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(name, message):
    with pytest.raises(RecipeError, match=message):
        build_method(name, {})


def test_a_run_does_not_choose_its_blend_on_validation_data():
    with pytest.raises(
        RecipeError, match=r"not 'validation': .* fedbb refit RUN --blend validation"
    ):
        build_method("fedavg+lda-head", {"lda-head": {"blend": "validation"}})


@pytest.mark.parametrize("head", HEADS)
def test_a_head_goes_on_any_method_that_does_not_set_the_classifier_itself(head):
    # pFedLA and FedFusion weigh clients by themselves, and are refused with a second weighting.
    pairs = filter(can_be_built, map("+".join, product(BASES, BALANCING)))
    for name in (*ALL_METHODS, *pairs):
        base = build_method(name, {})
        if name.partition("+")[0] in ("creff", "ccvr", "clip2fl"):
            with pytest.raises(
                RecipeError, match=r"would serve two classifiers, \w+'s and its own"
            ):
                build_method(f"{name}+{head}", {})
        elif not base.shares_model:
            with pytest.raises(RecipeError, match=r"works on the merged model, of which"):
                build_method(f"{name}+{head}", {})
        else:
            built = build_method(f"{name}+{head}", {})
            assert (built.loss, built.penalties) == (base.loss, base.penalties)
            assert (built.weighting, built.merge) == (base.weighting, base.merge)
            assert built.server[:-1] == base.server


def test_a_network_without_a_linear_classifier_is_refused():
    data = toy_dataset()
    clients = fedbb.partition.iid(data, clients=2, seed=0)

    def bare():
        return nn.Sequential(nn.Flatten(), nn.Linear(data.train.inputs[0].size, 3, bias=False))

    def scaled():
        return nn.Sequential(bare()[0], nn.Linear(data.train.inputs[0].size, 3), nn.Softplus())

    for name in ("fedavg+lda-head", "creff", "ccvr", "fed-rod"):
        with pytest.raises(RecipeError, match=r"must be an nn\.Linear with a bias"):
            fedbb.simulate(data, clients, model=bare, method=name, rounds=1)
    with pytest.raises(RecipeError, match="needs a network whose logits are its classifier's"):
        fedbb.simulate(data, clients, model=scaled, method="fedavg+lda-head", rounds=1)
