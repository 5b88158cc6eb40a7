"""A method that fills every slot: equal bits on every engine, and after a resume at any round."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import fedbb
from fedbb.errors import RecipeError, RunError
from fedbb.runs.checkpoint import load_checkpoint, save_checkpoint
from fedbb.runs.folder import RunFolder
from helpers.slot_method import slot_method
from helpers.small_run import without_seconds
from helpers.toy import toy_dataset

ROUNDS = 4


def network():
    sizes = toy_dataset().train.inputs[0].size
    return nn.Sequential(
        nn.Flatten(), nn.Linear(sizes, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    )


def simulate(method=None, **options):
    data = toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=5, concentration=0.5, seed=1)
    options = {"rounds": ROUNDS, "participation": 0.6, **options}
    local = fedbb.LocalConfig(batch_size=4, lr=0.05)
    method = method or slot_method()
    return fedbb.simulate(data, clients, model=network, method=method, local=local, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return simulate(out=tmp_path_factory.mktemp("slots") / "whole")


def test_every_slot_changes_the_result(whole):
    method = slot_method()
    plain = fedbb.Method("plain")
    for slot in ("sampling", "server"):
        if slot == "server":
            changed = replace(method, server=(), statistics=(), penalties=())
        else:
            changed = replace(method, sampling=plain.sampling)
        assert simulate(changed).sha256 != whole.sha256


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_pool_gives_the_bits_of_the_inline_engine(whole, workers):
    assert simulate(workers=workers).sha256 == whole.sha256


@pytest.mark.parametrize("after", range(1, ROUNDS))
def test_a_run_left_after_any_round_goes_on_to_the_bit(whole, tmp_path, after):
    class LeaveError(Exception):
        pass

    def leave(record):
        if record.round == after:
            raise LeaveError

    with pytest.raises(LeaveError):
        simulate(out=tmp_path / "part", progress=leave)
    resumed = simulate(out=tmp_path / "part", resume=True)
    assert resumed.sha256 == whole.sha256
    records = [RunFolder(path).records() for path in (tmp_path / "part", whole.folder)]
    assert without_seconds(records[0]) == without_seconds(records[1])


def test_the_checkpoint_holds_the_trained_model_and_the_final_file_the_served_one(whole):
    last = load_checkpoint(whole.folder / "checkpoints" / f"round-{ROUNDS:06d}.safetensors")
    final = load_checkpoint(whole.folder / "final.safetensors")
    assert sorted(last.server) == ["all.shares", "all.shift", "all.weights"]
    assert final.server == {}
    (step,) = slot_method().server
    served = step.serve({n.removeprefix("all."): t for n, t in last.server.items()}, last.state)
    for name, tensor in final.state.params.items():
        assert torch.equal(tensor, served.params[name])
    assert not torch.equal(final.state.params["4.bias"], last.state.params["4.bias"])
    held = whole.model.state_dict()
    assert any(torch.equal(tensor, final.state.params["4.bias"]) for tensor in held.values())


def test_a_checkpoint_with_another_server_state_is_refused(whole, tmp_path):
    out = tmp_path / "part"
    simulate(out=out)
    (out / "summary.json").unlink()
    for path in (out / "checkpoints").iterdir():
        held = load_checkpoint(path)
        save_checkpoint(path, replace(held, server={"all.shift": torch.zeros(2)}))
    with (
        pytest.warns(
            RuntimeWarning, match="the run's server state differs from it in 'all.shares'"
        ),
        pytest.raises(RunError, match="no usable checkpoint"),
    ):
        simulate(out=out, resume=True)


def test_the_record_of_a_run_tells_its_slots_apart_and_leaves_out_empty_ones(whole):
    assert set(whole.recipe.method.options) == {
        "loss", "penalties", "weighting", "merge", "sampling", "statistics", "server",
    }  # fmt: skip
    plain = simulate(fedbb.Method("plain"), rounds=1)
    assert set(plain.recipe.method.options) == {"loss", "penalties", "weighting", "merge"}


def test_two_parts_of_one_name_are_refused():
    method = slot_method()
    with pytest.raises(RecipeError, match="mine: All and All are both named 'all'"):
        fedbb.Method("mine", server=(*method.server, *method.server))
