"""CBR as an aggregator of NVFlare, and the example in NVFlare's simulator."""

import csv
import importlib
import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare.apis", reason="needs the extra fedbb[nvflare]")

from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.app_event_type import AppEventType
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.job_config.api import FedJob

from fedbb import client_weights
from fedbb.errors import ReplyError
from fedbb.nvflare import ClientBalancedAggregator, report_label_statistics

EXAMPLE = Path(__file__).parents[2] / "examples" / "nvflare"
LABELS = {"site-1": [0, 1, 2, 0, 1, 1], "site-2": [0, 0, 0, 1]}
COUNTS = [[2, 3, 1], [3, 1, 0]]
SENT = {"w": np.zeros(3, np.float32), "n": np.array(4)}


def context(folder=None, peer=None):
    """Return a context of NVFlare's own kind, in which a client is being served."""
    engine = SimpleNamespace(
        get_workspace=lambda: SimpleNamespace(get_run_dir=lambda job: str(folder)),
        fire_event=lambda event, fl_ctx: None,
    )
    manager = FLContextManager(engine, "server", "job", public_stickers={}, private_stickers={})
    made = manager.new_context()
    if peer is not None:
        other = FLContext()
        other.set_prop(ReservedKey.IDENTITY_NAME, peer, private=False)
        made.set_peer_context(other)
    return made


def send(aggregator, params, folder=None, names=tuple(LABELS)):
    """Send a model to clients, as FedAvg does."""
    aggregator.reset_stats()
    model = FLModel(params=params, current_round=3, total_rounds=9)
    for name in names:
        made = context(folder, name)
        made.set_prop(AppConstants.TRAIN_SHAREABLE, FLModelUtils.to_shareable(model), sticky=False)
        aggregator.handle_event(AppEventType.BEFORE_TRAIN_TASK, made)


def reply(name, params, **options):
    model = FLModel(params=params, metrics={"accuracy": 0.5}, **options)
    report_label_statistics(model, LABELS[name], classes=3)
    model.meta["client_name"] = name  # NVFlare's controller notes it
    return model


def read_rows(path):
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


def test_a_round_of_arrays(tmp_path):
    aggregator = ClientBalancedAggregator()
    send(aggregator, SENT, tmp_path)
    for step, name in enumerate(LABELS):
        aggregator.accept_model(reply(name, {"w": SENT["w"] + step, "n": np.array(5 + step)}))
    result = aggregator.aggregate_model()
    weights = client_weights(COUNTS)
    assert result.params_type == ParamsType.FULL
    assert result.params["w"] == pytest.approx(np.full(3, weights[1]))
    assert result.params["n"] == 6
    assert result.metrics == {"accuracy": pytest.approx(0.5)}
    rows = read_rows(tmp_path / "client_weights.csv")
    assert [row["client"] for row in rows] == list(LABELS)
    assert [float(row["weight"]) for row in rows] == pytest.approx(weights)
    assert [float(row["by_samples"]) for row in rows] == pytest.approx([0.6, 0.4])
    assert {row["round"] for row in rows} == {"3"}


def test_tensors_come_back_as_tensors_and_changes_as_changes(tmp_path):
    aggregator = ClientBalancedAggregator()
    send(aggregator, {"w": torch.ones(3)}, tmp_path)
    for step, name in enumerate(LABELS):
        change = {"w": torch.full((3,), float(step))}
        aggregator.accept_model(reply(name, change, params_type=ParamsType.DIFF))
    result = aggregator.aggregate_model()
    assert result.params_type == ParamsType.DIFF
    assert torch.allclose(result.params["w"], torch.tensor(client_weights(COUNTS)[1]).float())


def test_a_tensor_on_disk_is_read_when_it_is_needed(tmp_path):
    class OnDisk:
        def __init__(self, value):
            self.value = value

        def materialize(self):
            return self.value

    aggregator = ClientBalancedAggregator(quorum=0)
    send(aggregator, {"w": torch.zeros(3)}, tmp_path)
    aggregator.accept_model(reply("site-1", {"w": OnDisk(torch.ones(3))}))
    assert torch.equal(aggregator.aggregate_model().params["w"], torch.ones(3))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"params": {"w": np.ones(1, np.float32), "n": np.array(1)}}, r"site-1.*shape \(1,\)"),
        ({"params": {"w": "x", "n": np.array(1)}}, "site-1.*not an array"),
        ({"params": {"w": torch.ones(3).bfloat16(), "n": np.array(1)}}, "site-1.*bfloat16"),
        ({"params": [1]}, "site-1.*not a dictionary"),
        ({"meta": {"client_name": "site-1"}}, "site-1.*needs report_label_statistics"),
        ({"meta": {}}, "without the name"),
    ],
)
def test_a_reply_that_does_not_fit_is_left_out_by_name(change, words, tmp_path):
    aggregator = ClientBalancedAggregator()
    send(aggregator, SENT, tmp_path)
    wrong = reply("site-1", dict(SENT))
    for key, value in change.items():
        setattr(wrong, key, value)
    with pytest.raises(ReplyError, match=words):
        aggregator.accept_model(wrong)
    aggregator.accept_model(reply("site-2", dict(SENT)))
    assert aggregator.aggregate_model().params["w"] == pytest.approx(SENT["w"])


def test_without_a_quorum_the_model_stays(tmp_path):
    aggregator = ClientBalancedAggregator(quorum=0.8)
    send(aggregator, SENT, tmp_path)
    aggregator.accept_model(reply("site-1", {"w": SENT["w"] + 1, "n": np.array(5)}))
    assert aggregator.aggregate_model().params == SENT
    assert not (tmp_path / "client_weights.csv").exists()
    with pytest.raises(ReplyError, match="was not asked"):
        aggregator.accept_model(reply("site-2", dict(SENT)))
    with pytest.raises(RuntimeError, match="were sent a model"):
        aggregator.aggregate_model()


def test_scatter_and_gather_can_use_it_too(tmp_path):
    aggregator = ClientBalancedAggregator(table_file="")
    send(aggregator, SENT, tmp_path)
    for name in LABELS:
        model = reply(name, {"w": SENT["w"] + 1, "n": np.array(5)})
        del model.meta["client_name"]
        assert aggregator.accept(FLModelUtils.to_shareable(model), context(tmp_path, name))
    wrong = FLModelUtils.to_shareable(reply("site-1", {"w": SENT["w"]}))
    assert not aggregator.accept(wrong, context(tmp_path, "site-1"))
    result = FLModelUtils.from_shareable(aggregator.aggregate(context(tmp_path)))
    assert result.params["w"] == pytest.approx(np.ones(3))
    assert not (tmp_path / "client_weights.csv").exists()


@pytest.mark.parametrize("wrong", [{"gamma": 2}, {"floor": 0}, {"max_weight": 0}, {"quorum": -1}])
def test_a_value_outside_of_its_range_is_refused_when_the_job_is_made(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        ClientBalancedAggregator(**wrong)


def test_a_job_keeps_the_arguments_and_may_leave_the_package_out(tmp_path):
    job = FedJob(name="job")
    job.set_app_packages(["fedbb"])
    aggregator = ClientBalancedAggregator(max_weight=0.4, floor=0.02, reading="share-var")
    job.to_server(FedAvg(num_clients=2, num_rounds=1, model={}, aggregator=aggregator))
    job.export_job(str(tmp_path))
    (config,) = tmp_path.rglob("config_fed_server.json")
    (workflow,) = json.loads(config.read_text("utf-8"))["workflows"]
    assert workflow["args"]["aggregator"] == {
        "path": "fedbb.nvflare.aggregator.ClientBalancedAggregator",
        "args": {"reading": "share-var", "floor": 0.02, "max_weight": 0.4},
    }
    assert not list(tmp_path.rglob("custom/fedbb"))


def expected_model(monkeypatch, rounds, sites, max_weight):
    """Return the model of the example's job, computed in plain Python."""
    monkeypatch.syspath_prepend(EXAMPLE)
    task, client = importlib.import_module("task"), importlib.import_module("client")
    torch.manual_seed(0)
    state = task.Net().state_dict()
    for number in range(rounds):
        trained, counts = [], []
        for site in range(sites):
            x, y, _, _ = task.load_data(site, sites)
            model = task.Net()
            model.load_state_dict(state)
            torch.manual_seed(1000 * site + number)
            client.train(model, x, y, Namespace(epochs=2, learning_rate=0.1))
            trained.append(model.state_dict())
            counts.append(np.bincount(y, minlength=task.CLASSES))
        weights = client_weights(counts)
        assert max(weights) <= max_weight
        state = {
            name: sum(
                w * one[name].double() for w, one in zip(weights, trained, strict=True)
            ).float()
            if tensor.is_floating_point()
            else max(one[name] for one in trained)
            for name, tensor in state.items()
        }
    return state


@pytest.mark.slow
@pytest.mark.parametrize("transfer", ["FULL", "DIFF"])
def test_the_example_runs_in_the_simulator_and_gives_the_model_of_cbr(
    transfer, tmp_path, monkeypatch
):
    words = ["--sites", "3", "--rounds", "2", "--folder", str(tmp_path), "--transfer", transfer]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "job.py"), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (saved,) = tmp_path.rglob("FL_global_model.pt")
    found = torch.load(saved, weights_only=True)["model"]
    expected = expected_model(monkeypatch, 2, 3, 0.5)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.allclose(found[name], tensor, atol=1e-5), name
    (table,) = tmp_path.rglob("client_weights.csv")
    rows = read_rows(table)
    assert [row["client"] for row in rows] == ["site-1", "site-2", "site-3"] * 2
    assert "client weights of round 1:" in done.stdout + done.stderr
    sizes = {row["client"]: float(row["by_samples"]) for row in rows}
    weights = {row["client"]: float(row["weight"]) for row in rows}
    assert max(sizes, key=sizes.get) == min(weights, key=weights.get)
