import json
import multiprocessing
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedbb
from fedbb.data.registry import load_dataset
from fedbb.errors import DataError, RecipeError, RunError
from fedbb.partition.registry import Rule
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from helpers.small_run import small_values, write_npz
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": np.zeros((4, 2))}, "data is of type ndarray; needed: a fedbb.Dataset, as"),
        ({"clients": 3}, "clients is of type int; needed: a partition, as fedbb.partition"),
        ({"clients": [[0], [1]]}, "clients is of type list; needed: a partition"),
        ({"model": 3}, "model is of type int; needed: an nn.Module, a function"),
        ({"method": None}, 'method is of type NoneType; needed: a name such as "fedbb"'),
        ({"method": fedbb.methods.fedbb}, "method is of type function; needed: a name"),
        ({"local": {"lr": 0.1}}, "local is of type dict; needed: a fedbb.LocalConfig"),
        ({"rounds": 2.5}, "rounds is of type float; needed: a whole number"),
        ({"validation": 1.0}, "validation = 1.0 is refused: input should be less than 1"),
    ],
)
def test_an_argument_of_another_type_is_refused_by_name(changes, message):
    data = toy_dataset()
    given = {"data": data, "clients": fedbb.partition.iid(data, clients=2), "model": net}
    with pytest.raises(RecipeError, match=re.escape(message)):
        fedbb.simulate(**(given | changes))


def test_a_number_of_workers_below_zero_is_refused():
    with pytest.raises(RunError, match="workers is -1; allowed: 0 for none"):
        toy(workers=-1)


@pytest.mark.parametrize("privacy", ["masked", "bfv"])
def test_secure_aggregation_gives_the_bits_of_the_same_recipe(tmp_path, monkeypatch, privacy):
    if privacy == "bfv":
        pytest.importorskip("tenseal", reason="fedbb[he]")
    path = write_npz(tmp_path / "small.npz")
    expected = fedbb.run(small_values(path, privacy=privacy, rounds={"number": 2})).sha256
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    data = load_dataset("npz", path=path)
    clients = fedbb.partition.iid(data, clients=3)
    options = {"method": "fedbb", "rounds": 2, "local": LOCAL}
    private = fedbb.simulate(data, clients, privacy=privacy, **options)
    assert private.sha256 == expected
    assert list(here.iterdir()) == []
    plain = fedbb.simulate(data, clients, **options)
    assert plain.sha256 != private.sha256
    assert plain.final["accuracy"] == pytest.approx(private.final["accuracy"], abs=0.1)
    kept = fedbb.simulate(data, clients, privacy=privacy, out="run", **options)
    assert kept.sha256 == expected
    assert (here / "run" / "roster.json").exists()
    assert all(client["weight"] is None for client in kept.history[0].clients)


def test_secure_aggregation_of_two_clients_is_refused():
    data = toy_dataset()
    clients = fedbb.partition.iid(data, clients=2)
    with pytest.raises(RecipeError, match="needs 3 clients"):
        fedbb.simulate(data, clients, model=net, privacy="masked")


def test_central_training_gives_the_bits_of_the_same_recipe(tmp_path):
    path = write_npz(tmp_path / "small.npz")
    values = small_values(path, engine="central", rounds={"number": 3})
    del values["data"]["partition"]
    data = load_dataset("npz", path=path)
    alone = fedbb.partition.iid(data, clients=1)
    options = {"method": "fedbb", "rounds": 3, "local": LOCAL, "central": True}
    result = fedbb.simulate(data, alone, **options)
    assert result.sha256 == fedbb.run(values).sha256
    assert result.sha256 != fedbb.simulate(data, alone, **{**options, "central": False}).sha256
    with pytest.raises(RunError, match="no worker processes"):
        fedbb.simulate(data, alone, **options, workers=2)
    with pytest.raises(RecipeError, match="central"):
        fedbb.simulate(data, alone, **options, privacy="masked")


def test_a_simulation_out_of_patience_stops_and_resumes_to_the_same_end(tmp_path):
    patient = {"rounds": fedbb.Schedule(30, patience=2), "validation": 0.2}
    result = toy(**patient)
    last = len(result.history)
    assert 3 <= last < 30
    assert result.best_round == last - 2
    assert toy(rounds=last, validation=0.2).sha256 == result.sha256
    assert toy(**patient, out=tmp_path / "run").sha256 == result.sha256
    summary = RunFolder(tmp_path / "run").read_json("summary.json")
    assert (summary["stopped"], summary["rounds"]) == ("patience", last)
    data = toy_dataset()
    clients = fedbb.partition.iid(data, clients=3)
    options = {"model": net, "local": LOCAL, **patient}
    assert len(list(fedbb.iter_rounds(data, clients, **options))) == last


class Interrupting(nn.Module):
    """Cross-entropy that a user stops with Ctrl-C in the middle of a client's training."""

    calls = 0
    after = None

    def forward(self, logits, targets):
        type(self).calls += 1
        if self.calls == self.after:
            signal.raise_signal(signal.SIGINT)
        return nn.functional.cross_entropy(logits, targets)


@pytest.mark.parametrize("method", ["plain", "moon"])
def test_a_simulation_that_is_interrupted_in_a_round_resumes_to_the_same_bits(
    tmp_path, monkeypatch, method
):
    base = fedbb.methods.moon() if method == "moon" else fedbb.methods.fedavg()
    chosen = fedbb.Method("mine", Interrupting(), base.penalties)
    options = {"method": chosen, "rounds": 4, "out": tmp_path / "run"}
    whole = toy(**{**options, "out": None}).sha256
    # 60 examples in batches of 8 among 3 clients are 9 steps a round: the third round.
    monkeypatch.setattr(Interrupting, "after", Interrupting.calls + 22)
    with pytest.raises(KeyboardInterrupt):
        toy(**options)
    assert len(RunFolder(tmp_path / "run").records()) == 2
    assert len(fedbb.read_run(tmp_path / "run").history) == 2
    resumed = toy(**options, resume=True)
    assert [record.round for record in resumed.history] == [1, 2, 3, 4]
    assert resumed.sha256 == whole


def test_an_interruption_ends_the_workers_and_the_run_resumes(tmp_path):
    def interrupt(record):
        if record.round == 1:
            signal.raise_signal(signal.SIGINT)

    options = {"rounds": 3, "out": tmp_path / "run", "workers": 2}
    with pytest.raises(KeyboardInterrupt):
        toy(**options, progress=interrupt)
    assert multiprocessing.active_children() == []
    assert toy(**options, resume=True).sha256 == toy(rounds=3).sha256


def start(script, *words):
    """Run a script in a process of its own."""
    tests = str(Path(__file__).parents[1])
    paths = os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(script), *map(str, words)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


OWN_PARTS = """
import fedbb
import torch
from torch import nn
from helpers.toy import toy_dataset

print("started")

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(16, width), nn.Dropout(0.2))
        self.head = nn.Linear(width, 3)

    def forward(self, images):
        return self.head(torch.relu(self.body(images)))

class Loss(nn.Module):
    def __init__(self, counts):
        super().__init__()
        self.register_buffer("weight", torch.tensor(1 / (1 + counts.positive)).float())

    def forward(self, logits, targets):
        return nn.functional.cross_entropy(logits, targets, weight=self.weight)

data = toy_dataset()
clients = fedbb.partition.iid(data, clients=3)
penalties = fedbb.methods.moon().penalties
method = fedbb.Method("mine", loss=lambda counts: Loss(counts), penalties=penalties)
for workers in (0, 2, None):
    options = {"model": lambda: Net(width=8), "method": method, "rounds": 3, "workers": workers}
    print(fedbb.simulate(data, clients, **options).sha256)
"""


def test_parts_that_a_script_without_a_guard_defines_train_in_workers(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(OWN_PARTS)
    answer = start(script)
    assert answer.returncode == 0, answer.stderr
    first, *digests = answer.stdout.split()
    assert first == "started"
    assert len(digests) == 3
    assert len(set(digests)) == 1


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


@pytest.mark.slow
def test_a_killed_simulation_resumes_to_the_same_bits(tmp_path, monkeypatch, capsys):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert start(script, tmp_path / "killed", "kill").returncode == -signal.SIGKILL
    assert len(RunFolder(tmp_path / "killed").records()) == 2
    printed = []
    for out in ("killed", "whole"):
        monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / out)])
        runpy.run_path(str(script), run_name="__main__")
        printed.append(capsys.readouterr().out)
    resumed, whole = printed
    assert resumed == whole != ""
