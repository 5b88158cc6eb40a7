"""FedDF, FedMD, RHFL and FedFusion in runs: what they reduce to, equal bits, and resumed runs."""

from functools import partial

import numpy as np
import pytest
import torch

import fedbb
from fedbb.errors import DataError, RecipeError, ReplyError
from fedbb.methods import Method, fedavg, feddf, fedfusion, fedmd, local, rhfl
from fedbb.methods.distillation import PublicTable
from fedbb.records import ClientInfo, ModelFacts, ModelState, Task
from fedbb.rounds.replies import Expected, check_statistics
from fedbb.runs.folder import RunFolder
from helpers.cover import few
from helpers.kept_runs import ROUNDS, kept, same, wide
from helpers.kept_runs import simulate_toy as simulate
from helpers.small_run import without_seconds
from helpers.toy import toy_dataset

METHODS = {
    "feddf": partial(feddf, steps=6, batch_size=8),
    "fedmd": partial(fedmd, batch_size=8),
    "rhfl": partial(rhfl, batch_size=8),
    "rhfl-equal": partial(rhfl, batch_size=8, confidence="equal"),
    "fedfusion": partial(fedfusion, components=3, steps=4),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the inline run of a method, made once."""
    found = {}

    def run(name):
        if name not in found:
            out = tmp_path_factory.mktemp(name) / "whole"
            found[name] = simulate(METHODS[name](), participation=0.75, out=out)
        return found[name]

    return run


def test_public_inputs_alone_change_no_bit():
    plain = simulate(fedavg(), public=None)
    assert simulate(fedavg()).sha256 == plain.sha256
    assert simulate(feddf(steps=0)).sha256 == plain.sha256
    assert simulate(METHODS["feddf"]()).sha256 != plain.sha256


def test_a_federation_of_one_learns_nothing_from_itself(tmp_path):
    """Its table is the mean, so that every step is skipped."""
    assert simulate(feddf(steps=5), clients=1).sha256 == simulate(fedavg(), clients=1).sha256
    for name, method in {"md": fedmd(), "rhfl": rhfl(), "equal": rhfl(confidence="equal")}.items():
        simulate(method, clients=1, out=tmp_path / name)
        alone = Method("alone", method.loss, personal=local().personal)
        simulate(alone, clients=1, out=tmp_path / f"{name}-alone")
        ours, theirs = (kept(tmp_path / folder)[1][0] for folder in (name, f"{name}-alone"))
        ours = {key: tensor for key, tensor in ours.items() if not key.startswith("distillation.")}
        assert same(ours, theirs)


@pytest.mark.parametrize("make", [fedmd, rhfl])
def test_without_epochs_on_public_inputs_every_client_is_alone(tmp_path, make):
    method = make(public_epochs=0)
    simulate(method, out=tmp_path / "none")
    simulate(Method("alone", method.loss, personal=local().personal), out=tmp_path / "alone")
    simulate(make(batch_size=8), out=tmp_path / "some")
    none, alone, some = (kept(tmp_path / name)[1] for name in ("none", "alone", "some"))
    for client, theirs in alone.items():
        ours = {key: none[client][key] for key in theirs}
        assert same(ours, theirs)
        assert not same({key: some[client][key] for key in theirs}, theirs)


def test_warm_rounds_exchange_nothing(tmp_path):
    simulate(fedmd(warm_rounds=ROUNDS), out=tmp_path / "warm")
    simulate(local(), out=tmp_path / "alone")
    server, clients = kept(tmp_path / "warm")
    assert float(server["consensus.number"]) == 0
    assert all(same(clients[k], theirs) for k, theirs in kept(tmp_path / "alone")[1].items())


def test_the_mean_table_is_that_of_the_clients_models(tmp_path):
    simulate(fedmd(), out=tmp_path / "run")
    server, clients = kept(tmp_path / "run")
    inputs = torch.from_numpy(toy_dataset().test.inputs)
    tables = []
    for tensors in clients.values():
        net = wide().eval()
        names = {key.removeprefix("personal."): tensor for key, tensor in tensors.items()}
        net.load_state_dict(names)
        with torch.no_grad():
            tables.append(net(inputs))
    assert torch.allclose(server["consensus.table"], torch.stack(tables).mean(dim=0), atol=1e-5)


COVER = [("feddf", 2), ("fedmd", 3), ("rhfl", 2), ("fedfusion", 1)]
REST = [(name, w) for name in METHODS for w in (1, 2, 3) if (name, w) not in COVER]


@pytest.mark.parametrize(
    ("name", "workers"),
    few([*COVER, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in REST)], 1),
)
def test_the_pool_gives_the_bits_of_the_inline_engine(whole, tmp_path, name, workers):
    found = simulate(METHODS[name](), participation=0.75, out=tmp_path / "pool", workers=workers)
    assert found.sha256 == whole(name).sha256
    ours, theirs = kept(tmp_path / "pool"), kept(whole(name).folder)
    assert same(ours[0], theirs[0])
    assert all(same(ours[1][client], tensors) for client, tensors in theirs[1].items())


STOPS = [("feddf", 1), ("fedmd", 2), ("rhfl", 1), ("rhfl", 2), ("fedfusion", 2)]
OTHERS = [(name, r) for name in METHODS for r in (1, 2) if (name, r) not in STOPS]


@pytest.mark.parametrize(
    ("name", "after"),
    [*STOPS, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in OTHERS)],
)
def test_a_run_left_after_any_round_goes_on_to_the_bit(whole, tmp_path, name, after):
    class LeaveError(Exception):
        pass

    def leave(record):
        if record.round == after:
            raise LeaveError

    run = partial(simulate, METHODS[name](), participation=0.75, out=tmp_path / "part")
    with pytest.raises(LeaveError):
        run(progress=leave)
    assert run(resume=True).sha256 == whole(name).sha256
    ours, theirs = kept(tmp_path / "part"), kept(whole(name).folder)
    assert same(ours[0], theirs[0])
    assert all(same(ours[1][client], tensors) for client, tensors in theirs[1].items())
    records = [RunFolder(path).records() for path in (tmp_path / "part", whole(name).folder)]
    assert without_seconds(records[0]) == without_seconds(records[1])


def test_a_resumed_run_with_other_public_inputs_is_refused(whole):
    folder = whole("feddf").folder
    with pytest.raises(fedbb.errors.RunError, match=r"python\.data"):
        simulate(
            METHODS["feddf"](),
            participation=0.75,
            out=folder,
            resume=True,
            public=toy_dataset().test.inputs + 1,
        )


def test_a_method_of_distillation_without_public_inputs_is_refused():
    with pytest.raises(RecipeError, match="FedMD learns from public inputs"):
        simulate(fedmd(), public=None)


def test_public_inputs_of_another_form_are_refused():
    with pytest.raises(DataError, match=r"array has float32 inputs of shape \(3,\)"):
        simulate(feddf(), public=np.zeros((5, 3), dtype=np.float32))


FACTS = ModelFacts(Task.MULTICLASS, 3, None, public=2)
TABLE = np.full((2, 3), 0.25, dtype=np.float32)
GOOD = {"params.public-table.table": TABLE, "params.public-table.number": np.array(1, np.float32)}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"params.public-table.number": np.array(5, np.float32)}, "it counts as 5 tables"),
        ({"params.public-table.table": TABLE * 5}, "a probability is not from 0 to 1"),
        ({"params.public-table.table": TABLE - 1}, "a probability is not from 0 to 1"),
        ({"params.public-table.table": TABLE * np.nan}, "not finite"),
        ({"params.public-table.table": TABLE[:1]}, "has shape"),
        ({"params.public-table.table": TABLE.astype(np.float64)}, "has type"),
    ],
)
def test_a_reply_with_an_impossible_table_is_refused_by_name(changes, reason):
    spec = rhfl(confidence="equal").distillation
    expected = Expected(
        ModelState({}, {}),
        ClientInfo(4, 10),
        fedbb.LocalConfig(),
        round=2,
        statistics=(PublicTable(spec),),
        facts=FACTS,
    )
    assert check_statistics(GOOD, expected).keys() == {"public-table.table", "public-table.number"}
    with pytest.raises(ReplyError, match=f"client 4, round 2.*{reason}"):
        check_statistics({**GOOD, **changes}, expected)
