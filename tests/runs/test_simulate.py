import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import fedbb
from fedbb.data.registry import load_dataset
from fedbb.errors import DataError, RecipeError, RunError
from fedbb.partition.registry import Rule
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from helpers.small_run import small_recipe, small_values, write_npz
from helpers.toy import toy_dataset

LOCAL = fedbb.LocalConfig(batch_size=8, lr=0.05)


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def toy(**options):
    data = toy_dataset()
    clients = fedbb.partition.iid(data, clients=3)
    return fedbb.simulate(data, clients, **{"model": net, "rounds": 2, "local": LOCAL, **options})


@pytest.mark.parametrize("changes", [{}, {"validation": 0.2}])
def test_a_simulation_gives_the_bits_of_the_same_recipe(tmp_path, changes):
    path = write_npz(tmp_path / "small.npz")
    values = small_values(path)
    values["data"] |= changes
    (tmp_path / "recipe.json").write_text(json.dumps(values))
    list(run(fedbb.read_recipe(tmp_path / "recipe.json"), tmp_path / "run"))
    data = load_dataset("npz", path=path)
    rule = Rule("even", clients=3)
    result = fedbb.simulate(data, rule, method="fedbb", rounds=4, local=LOCAL, **changes)
    assert result.sha256 == RunFolder(tmp_path / "run").read_json("summary.json")["sha256"]
    assert fedbb.run(values).sha256 == result.sha256


def test_the_result_has_scores_rounds_and_a_model_that_predicts():
    result, data = toy(rounds=3, validation=0.2), toy_dataset()
    assert [record.round for record in result.history] == [1, 2, 3]
    assert result.chosen_on == "validation"
    by_metric = [r.scores["validation"]["balanced_accuracy"] for r in result.history]
    assert result.best_round == 1 + by_metric.index(max(by_metric))
    assert result.best == result.history[result.best_round - 1].scores["test"]
    assert not result.model.training
    guesses = result.model(torch.tensor(data.test.inputs)).argmax(dim=1).numpy()
    assert (guesses == data.test.labels).mean() == pytest.approx(result.final["accuracy"])
    assert "3 rounds" in repr(result)
    frame = result.to_frame()
    assert frame["test_accuracy"].tolist() == [r.scores["test"]["accuracy"] for r in result.history]


def test_nothing_is_written_without_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert toy(method="moon").folder is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", ["fedbb", "moon"])
def test_workers_change_no_bit_of_a_simulation(method):
    assert toy(method=method).sha256 == toy(method=method, workers=2).sha256


def test_a_network_of_ones_own_keeps_its_weights_and_is_not_changed():
    own = net()
    before = {name: tensor.clone() for name, tensor in own.state_dict().items()}
    result = toy(model=own)
    assert all(torch.equal(before[name], tensor) for name, tensor in own.state_dict().items())
    assert not torch.equal(result.model[1].weight, own[1].weight)


def test_a_method_is_a_name_or_what_a_builder_returns():
    named, built = toy(method="fedbb"), toy(method=fedbb.methods.fedbb())
    assert named.sha256 == built.sha256
    assert toy(method=fedbb.methods.fedbb(mu="unit")).sha256 != named.sha256


def test_a_bare_module_is_a_loss():
    mine = fedbb.Method("mine", loss=nn.CrossEntropyLoss())
    assert toy(method=mine).final["accuracy"] == pytest.approx(toy().final["accuracy"], abs=0.05)


def test_iter_rounds_yields_each_model_and_can_be_left(tmp_path):
    data = toy_dataset()
    clients = fedbb.partition.iid(data, clients=3)
    options = {"model": net, "rounds": 3, "local": LOCAL, "out": tmp_path / "run"}
    for record in fedbb.iter_rounds(data, clients, **options):
        twin = net()
        twin.load_state_dict(record.state)
        break
    resumed = fedbb.simulate(data, clients, **options, resume=True)
    assert len(resumed.history) == 3
    assert resumed.sha256 == toy(rounds=3).sha256


def test_a_run_in_a_folder_is_read_and_cannot_be_resumed_by_other_parts(tmp_path):
    first = toy(out=tmp_path / "run", method="fedbb")
    again = fedbb.read_run(tmp_path / "run", model=net)
    assert again.final == first.final
    assert torch.equal(again.model[1].weight, first.model[1].weight)
    with pytest.raises(RunError, match="resume=True"):
        toy(out=tmp_path / "run", method="fedbb")
    for changes, words in (
        ({"method": "fedavg"}, "method.name"),
        ({"model": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3))}, "python.weights"),
        ({"validation": 0.5}, "python.data"),
    ):
        with pytest.raises(RunError, match=words):
            toy(out=tmp_path / "run", resume=True, **{"method": "fedbb", **changes})
    with pytest.raises(RecipeError, match=r"made from Python.*resume=True"):
        list(run(again.recipe, tmp_path / "run", resume=True))


def test_arguments_that_do_not_suit_are_refused():
    data = toy_dataset()
    other = fedbb.partition.iid(toy_dataset(train=50), clients=2)
    with pytest.raises(DataError, match="60"):
        fedbb.simulate(data, other, model=net)
    with pytest.raises(RecipeError, match=r"rounds.number"):
        toy(rounds=0)
    with pytest.raises(RecipeError, match="central training"):
        toy(central=True)
    with pytest.raises(RecipeError, match="patience"):
        toy(rounds=fedbb.Schedule(3, patience=1))


SCRIPT = """
import os, signal, sys
import fedbb
from torch import nn
from helpers.toy import toy_dataset

def stop(record):
    if len(sys.argv) > 2 and record.round == 2:
        os.kill(os.getpid(), signal.SIGKILL)

data = toy_dataset()
clients = fedbb.partition.iid(data, clients=3)
result = fedbb.simulate(
    data, clients, method="moon", rounds=4,
    model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Linear(8, 3)),
    out=sys.argv[1], resume=True, progress=stop,
)
print(result.sha256)
"""


def test_a_killed_simulation_resumes_to_the_same_bits(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    tests = str(Path(__file__).parents[1])
    paths = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])

    def start(*words):
        return subprocess.run(
            [sys.executable, str(script), *words],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    assert start(str(tmp_path / "killed"), "kill").returncode == -signal.SIGKILL
    assert len(RunFolder(tmp_path / "killed").records()) == 2
    resumed, whole = start(str(tmp_path / "killed")), start(str(tmp_path / "whole"))
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout == whole.stdout != ""


def test_runs_of_a_folder_are_rows_of_a_table(tmp_path):
    toy(out=tmp_path / "a", seed=1)
    fedbb.run(small_recipe(tmp_path / "data"), tmp_path / "b")
    frame = fedbb.read_runs(tmp_path)
    assert frame["method"].tolist() == ["fedavg", "fedbb"]
    assert frame["seed"].tolist() == [1, 0]
    assert frame["final_accuracy"].between(0, 1).all()
    assert isinstance(fedbb.read_run(tmp_path / "b").model, nn.Module)
