"""fedopt-sca in whole runs: engines, resume, replies, secure sums, and what it reduces to."""

import json
import re

import numpy as np
import pytest
import torch
from torch import nn

import fedbb
from fedbb.compression import Sparse
from fedbb.errors import RecipeError, ReplyError
from fedbb.flower.app.serde import STATE, pack_record, unpack_record
from fedbb.methods import Method, build_method, fedavg, fedopt_sca, harmonize
from fedbb.methods.personal import fedper
from fedbb.personal import KeptEntries
from fedbb.recipes.check import check_recipe
from fedbb.records import ClientInfo
from fedbb.report.results import read_run
from fedbb.rounds.replies import Expected, Reply, check_reply
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from fedbb.state import select, snapshot
from fedbb.training.config import LocalConfig, TrainJob
from fedbb.training.local import train_client
from helpers.commands import fedbb as command
from helpers.cover import few
from helpers.flower_loopback import changing, flower_run, open_loopback, take_identity
from helpers.secagg_grid import enrolled, private_recipe, private_run
from helpers.small_run import finish, small_recipe, without_seconds
from helpers.toy import toy_dataset, toy_network, toy_shares

DRAWN = {"values": "exact", "positions": "drawn", "density": 0.2}
OPTIONS = {
    "binary": {},
    "ternary": {"values": "ternary", "density": 0.05, "scope": "whole"},
    "drawn": DRAWN,
}


def sparse_recipe(folder, options, **changes):
    method = {"name": changes.pop("name", "fedopt-sca"), "options": options}
    return small_recipe(folder, method=method, rounds={"number": 3}, **changes)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folder, summary and records of an inline run of each kind."""
    place = tmp_path_factory.mktemp("sparse")
    found = {}
    for name, options in OPTIONS.items():
        summary, records = finish(sparse_recipe(place, options), place / name)
        found[name] = place / name, summary["sha256"], records
    return found


def test_every_number_sent_exactly_is_fedavg_to_the_bit(tmp_path):
    plain, _ = finish(sparse_recipe(tmp_path, {}, name="fedavg"), tmp_path / "plain")
    options = {"values": "exact", "density": 1.0}
    whole, records = finish(sparse_recipe(tmp_path, options), tmp_path / "whole")
    assert whole["sha256"] == plain["sha256"]
    checkpoint = load_checkpoint(tmp_path / "whole" / "checkpoints" / "round-000003.safetensors")
    assert checkpoint.state_rounds == {}
    model = load_checkpoint(tmp_path / "whole" / "final.safetensors").state
    tensors = (*model.params.values(), *model.buffers.values())
    sizes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    assert {client["sent_bytes"] for client in records[0]["clients"]} == {sizes}


@pytest.mark.parametrize("workers", few([1, 2, 3], 1))
def test_the_pool_gives_the_bits_of_the_inline_engine(runs, tmp_path, workers):
    recipe = sparse_recipe(tmp_path, OPTIONS["binary"], engine="pool")
    summary, records = finish(recipe, tmp_path / "run", workers=workers)
    assert summary["sha256"] == runs["binary"][1]
    assert without_seconds(records) == without_seconds(runs["binary"][2])


@pytest.mark.parametrize("name", OPTIONS)
def test_flower_gives_the_same_bits_and_its_replies_are_small(runs, tmp_path, monkeypatch, name):
    take_identity(monkeypatch)
    recipe = sparse_recipe(tmp_path, OPTIONS[name])
    grid = open_loopback(recipe, 3, state=str(tmp_path / "state"))
    sizes = {"train": []}

    def weigh(parcel):
        message = parcel.unpack()
        if not message.has_error() and STATE in message.content:
            sizes["train"].append(len(pack_bytes(message.content)))
        return parcel

    grid.spoil = weigh
    summary, records = flower_run(recipe, tmp_path / "run", grid)
    assert summary["sha256"] == runs[name][1]
    sent = {client["sent_bytes"] for record in records for client in record["clients"]}
    known = {client["sent_bytes"] for record in runs[name][2] for client in record["clients"]}
    assert sent == known
    model = load_checkpoint(tmp_path / "run" / "final.safetensors").state
    dense = sum(t.numel() * t.element_size() for t in (*model.params.values(),))
    (payload,) = known
    assert payload < 0.35 * dense
    # Names, types and shapes come on top, a few bytes for each tensor.
    assert all(payload < size < payload + 2000 for size in sizes["train"])


def pack_bytes(content):
    (block,) = content[STATE].values()
    return block if isinstance(block, bytes) else block.data


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("after", [1, 2])
def test_a_run_left_after_any_round_goes_on_to_the_bit(runs, tmp_path, name, after):
    recipe = sparse_recipe(tmp_path, OPTIONS[name])
    records = run(recipe, tmp_path / "part")
    for _ in range(after):
        next(records)
    records.close()
    summary, _ = finish(recipe, tmp_path / "part", resume=True)
    assert summary["sha256"] == runs[name][1]
    kept = [RunFolder(path).records() for path in (tmp_path / "part", runs[name][0])]
    assert without_seconds(kept[0]) == without_seconds(kept[1])


def test_a_client_keeps_what_it_did_not_send():
    dataset, plan = toy_dataset(), LocalConfig(batch_size=8, lr=0.1)
    start, client = snapshot(toy_network()), toy_shares(dataset)[0]
    job = TrainJob(0, 1, 0, start)
    plain, _ = train_client(toy_network(), client, job, fedavg(), plan)
    update, kept = train_client(toy_network(), client, job, fedopt_sca(), plan)
    rest = select(kept.tensors, "compression.")
    for name, tensor in rest.items():
        change = plain.state.params[name].double() - start.params[name].double()
        sent = update.state.params[name].double() - start.params[name].double()
        assert torch.allclose(sent + tensor.double(), change, atol=1e-6)
    assert rest.keys() == start.params.keys()
    assert equal_buffers(update.state, plain.state)


def equal_buffers(one, two):
    return all(torch.equal(one.buffers[name], two.buffers[name]) for name in two.buffers)


def test_without_the_rest_of_earlier_rounds_the_result_is_another(runs, tmp_path):
    summary, _ = finish(sparse_recipe(tmp_path, {"feedback": False}), tmp_path / "run")
    assert summary["sha256"] != runs["binary"][1]
    assert RunFolder(tmp_path / "run").latest().state_rounds == {}


def test_it_takes_the_loss_and_the_weights_of_another_method():
    method = build_method("fedopt-sca+fedbb", {"fedopt-sca": {"density": 0.5}})
    assert method.compression == Sparse(0.5)
    assert (method.loss, method.weighting) == (
        build_method("fedbb", {}).loss,
        build_method("fedbb", {}).weighting,
    )
    with pytest.raises(RecipeError, match="would lose the compression of FedOpt-SCA"):
        harmonize(fedavg(), fedopt_sca())


def test_a_part_that_stays_with_clients_is_not_moved():
    with pytest.raises(RecipeError, match=r"Sparse would move the part .* KeptEntries leaves"):
        Method("mine", personal=KeptEntries("head"), compression=Sparse(0.1, scope="whole"))
    both = Method("mine", personal=fedper().personal, compression=Sparse(0.1))
    dataset, start = toy_dataset(), snapshot(toy_network())
    update, _ = train_client(
        toy_network(),
        toy_shares(dataset)[0],
        TrainJob(0, 1, 0, start),
        both,
        LocalConfig(batch_size=8, lr=0.1),
    )
    for name in ("head.weight", "head.bias"):
        assert torch.equal(update.state.params[name], start.params[name])


def test_the_plain_name_is_refused_with_both_meanings(monkeypatch):
    for name in ("fedopt", "fedopt+fedbb"):
        with pytest.raises(RecipeError, match=r"Reddi et al. .*fedadam.* Asad et al. .*fedopt-sca"):
            build_method(name, {})
    refused = command("methods", "fedopt", monkeypatch=monkeypatch)
    assert refused.code == 2
    assert "fedopt-sca" in refused.err


BAD = {
    "positions that fall": ("positions.", lambda a: a[::-1].copy(), "rising positions"),
    "positions of another type": ("positions.", lambda a: a.astype("<i8"), "has type <i8"),
    "a missing value": ("values.", lambda a: a[:0], r"has shape \(0,\)"),
    "a value that is not finite": ("values.", lambda a: a * np.nan, "not finite"),
}


@pytest.mark.parametrize("fault", few(BAD, 2))
def test_a_bad_reply_is_refused_by_its_field_and_the_round_goes_on(tmp_path, monkeypatch, fault):
    take_identity(monkeypatch)
    prefix, change, reason = BAD[fault]
    recipe = sparse_recipe(tmp_path, OPTIONS["binary"])
    grid = open_loopback(recipe, 3, state=str(tmp_path / "state"))

    def spoil(content):
        arrays = unpack_record(content, STATE)
        name = max((n for n in arrays if n.startswith(prefix)), key=lambda n: arrays[n].size)
        arrays[name] = change(arrays[name])
        content[STATE] = pack_record(arrays)

    grid.faults[1, 1] = changing(spoil)
    _, records = flower_run(recipe, tmp_path / "run", grid)
    (absent,) = records[0]["absent"]
    assert absent["client"] == 1
    assert re.search(reason, absent["reason"])
    assert records[1]["absent"] == []


def test_coded_positions_give_the_same_model_with_fewer_bytes(runs, tmp_path, monkeypatch):
    """Their length varies; a record has what each client sent, on any engine."""
    take_identity(monkeypatch)
    recipe = sparse_recipe(tmp_path, {"coding": "golomb"})
    summary, records = finish(recipe, tmp_path / "inline")
    assert summary["sha256"] == runs["binary"][1]
    sent = [client["sent_bytes"] for record in records for client in record["clients"]]
    assert len(set(sent)) > 1
    assert max(sent) < runs["binary"][2][0]["clients"][0]["sent_bytes"]
    grid = open_loopback(recipe, 3, state=str(tmp_path / "state"))
    grid.faults[1, 3] = changing(shorten_code)
    flower, found = flower_run(recipe, tmp_path / "flower", grid)
    assert without_seconds(found[:2]) == without_seconds(records[:2])
    (absent,) = found[2]["absent"]
    assert re.search(r"client 1, round 3: positions\..* cannot be read: it ends", absent["reason"])
    assert flower["sha256"] != summary["sha256"]


def shorten_code(content):
    arrays = unpack_record(content, STATE)
    name = max((n for n in arrays if n.startswith("positions.")), key=lambda n: arrays[n].size)
    content[STATE] = pack_record({**arrays, name: arrays[name][:-1]})


@pytest.mark.slow
def test_the_pool_records_the_bytes_of_coded_positions(tmp_path):
    found = []
    for engine in ("inline", "pool"):
        recipe = sparse_recipe(tmp_path, {"coding": "golomb"}, engine=engine)
        found.append(without_seconds(finish(recipe, tmp_path / engine)[1]))
    assert found[0] == found[1]


def test_buffers_of_the_clients_own_stay_with_them(tmp_path):
    data = toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=3, concentration=0.5, seed=1)

    def network():
        size = data.train.inputs[0].size
        layers = nn.Flatten(), nn.Linear(size, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)
        return nn.Sequential(*layers)

    run = fedbb.simulate(
        data,
        clients,
        model=network,
        method=fedopt_sca(buffers="own"),
        rounds=2,
        local=LocalConfig(batch_size=4, lr=0.05),
        bootstrap=0,
        out=tmp_path / "run",
    )
    final = load_checkpoint(run.folder / "final.safetensors")
    assert final.state.buffers["2.running_mean"].tolist() == [0.0] * 4
    kept = [
        select(RunFolder(run.folder).client_states.load(client, 2).tensors, "personal.")
        for client in range(3)
    ]
    assert {name for one in kept for name in one} == set(network().state_dict()) - {
        name for name, _ in network().named_parameters()
    }
    assert len({tuple(one["2.running_mean"].tolist()) for one in kept}) == 3
    assert RunFolder(run.folder).records()[-1]["scores_of"]["models"] == "clients"
    with pytest.raises(
        RecipeError, match="a set of running statistics stays with the clients, and"
    ):
        fedbb.simulate(data, clients, model="linear", method=fedopt_sca(buffers="own"), rounds=1)


def test_a_whole_model_in_place_of_a_message_is_refused():
    state = snapshot(toy_network())
    expected = Expected(
        state, ClientInfo(0, 8), LocalConfig(batch_size=8), 1, compression=Sparse(0.5)
    )
    arrays = {f"params.{n}": t.numpy() for n, t in state.params.items()}
    with pytest.raises(ReplyError, match="client 0, round 1: misses"):
        check_reply(Reply(0, 1, 1, arrays, 1, 0.5), expected)


@pytest.mark.parametrize("name", ["binary", "drawn"])
def test_a_private_run_is_the_open_one_up_to_rounding(runs, tmp_path, name):
    # Of the largest numbers, the last bits decide which are sent: only one round is compared.
    number = 1 if name == "binary" else 3
    method = {"name": "fedopt-sca", "options": OPTIONS[name]}
    changes = {"method": method, "rounds": {"number": number}}
    finish(small_recipe(tmp_path, **changes), tmp_path / "open")
    private = small_recipe(tmp_path, privacy="masked", **changes)
    summary, records = finish(private, tmp_path / "private")
    ours, theirs = (
        load_checkpoint(tmp_path / folder / "final.safetensors").state
        for folder in ("private", "open")
    )
    for key, tensor in theirs.params.items():
        assert (ours.params[key] - tensor).abs().max() < 1e-5
    params = sum(tensor.numel() for tensor in ours.params.values())
    floats = sum(t.numel() for t in ours.buffers.values() if t.is_floating_point())
    (sent,) = {client["sent_bytes"] for record in records for client in record["clients"]}
    # Masks are dense; only positions that all clients share make a sum shorter.
    drawn = Sparse(**OPTIONS[name]).drawn(ours, 0, 1)
    counted = params if drawn is None else len(drawn)
    assert sent == 8 * (counted + floats + 3)
    assert finish(private, tmp_path / "again")[0]["sha256"] == summary["sha256"]


def test_a_private_run_on_flower_sums_the_drawn_positions_only(tmp_path, monkeypatch):
    take_identity(monkeypatch)
    recipe = private_recipe(tmp_path, method={"name": "fedopt-sca", "options": DRAWN})
    inline, kept = finish(recipe, tmp_path / "inline")
    summary, records = private_run(recipe, tmp_path / "run", enrolled(recipe, tmp_path))
    assert summary["sha256"] == inline["sha256"]
    assert without_seconds(records)[0]["clients"] == without_seconds(kept)[0]["clients"]


DP = {"clip": 0.5, "noise": 0.8, "delta": 1e-5}


def test_noise_needs_drawn_positions(tmp_path):
    largest = private_recipe(tmp_path, method={"name": "fedopt-sca"}, dp=DP)
    with pytest.raises(RecipeError, match=r"Sparse of FedOpt-SCA .* chosen by size .*drawn"):
        check_recipe(largest)
    drawn = private_recipe(tmp_path, method={"name": "fedopt-sca", "options": DRAWN}, dp=DP)
    assert check_recipe(drawn).compression.clip == DP["clip"]
    with pytest.raises(RecipeError, match='dp needs privacy = "masked"'):
        check_recipe(sparse_recipe(tmp_path, DRAWN, dp=DP))


def test_noise_is_on_the_drawn_positions_alone_and_is_accounted_for(tmp_path):
    method = {"name": "fedopt-sca", "options": DRAWN}
    noisy = private_recipe(tmp_path, method=method, dp=DP, rounds={"number": 1})
    finish(noisy, tmp_path / "noisy")
    plain = private_recipe(tmp_path, method=method, rounds={"number": 1})
    finish(plain, tmp_path / "plain")
    ours, theirs = (
        load_checkpoint(tmp_path / folder / "final.safetensors").state.params
        for folder in ("noisy", "plain")
    )
    apart = torch.cat([(ours[n] != theirs[n]).reshape(-1) for n in sorted(ours)]).numpy()
    model = load_checkpoint(tmp_path / "noisy" / "final.safetensors").state
    places = Sparse(**DRAWN).drawn(model, 0, 1)
    assert np.flatnonzero(apart).tolist() == places.tolist()
    audit = RunFolder(tmp_path / "noisy").read_json("audit.json")["dp"]
    assert audit["epsilon"] == pytest.approx(fedbb.secagg.dp.epsilon(0.8, 1, 1e-5), rel=1e-9)


def test_central_training_sends_nothing_that_could_be_compressed(tmp_path):
    data = {"name": "npz", "path": str(tmp_path / "small.npz")}
    recipe = sparse_recipe(tmp_path, {}, engine="central", data=data)
    with pytest.raises(RecipeError, match="Sparse of FedOpt-SCA has no place in engine"):
        check_recipe(recipe)


def test_records_tables_and_commands_tell_the_bytes(runs, monkeypatch):
    path, _, records = runs["binary"]
    sent = sum(client["sent_bytes"] for record in records for client in record["clients"])
    assert read_run(path).sent_bytes == sent
    assert (
        f"{sent / 1e6:.2f} MB of compressed" in command("show", path, monkeypatch=monkeypatch).out
    )
    assert fedbb.read_runs(path)["sent_bytes"].tolist() == [sent]
    words = ("cost", "--images", "0", "--method", "fedopt-sca", "--json")
    (row,) = json.loads(command(*words, monkeypatch=monkeypatch).out)
    assert row["compressed_bytes"] < 0.07 * row["sent_bytes"]
    assert row["extra_bytes"] == 4 * row["parameters"]
    assert "compression Sparse" in command("methods", "fedopt-sca", monkeypatch=monkeypatch).out
    told = json.loads(command("methods", "fedopt-sca", "--json", monkeypatch=monkeypatch).out)
    assert told["cost"] == "less sent to the server, what is not sent kept by every client"


def test_a_simulation_from_python_has_the_digest_of_any_engine(tmp_path):
    data = toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=3, concentration=1.0, seed=1)
    results = [
        fedbb.simulate(data, clients, model=toy_network, method=fedopt_sca(), workers=n, rounds=2)
        for n in (0, 2)
    ]
    assert results[0].sha256 == results[1].sha256
    assert results[0].recipe.method.options["compression"] is not None
