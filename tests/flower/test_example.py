"""The example of an own Flower app: six lines make it a balanced one, and both run."""

import difflib
import importlib
import logging
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="needs the extra fedbb[flower]")

from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
from flwr.serverapp.strategy import FedAvg

from fedbb import client_weights, count_labels
from fedbb.flower.strategy import ClientBalancedStrategy
from helpers.flower_grid import OwnGrid, take_identity

EXAMPLES = Path(__file__).parents[2] / "examples" / "flower"
THEIRS, BALANCED = EXAMPLES / "theirs", EXAMPLES / "balanced"
NODES = (101, 102, 103)


def texts(app: Path) -> dict[str, list[str]]:
    files = [path for path in app.rglob("*") if path.is_file() and path.suffix in {".py", ".toml"}]
    return {str(path.relative_to(app)): path.read_text("utf-8").splitlines() for path in files}


@pytest.fixture
def load(monkeypatch, tmp_path):
    """Return a way to load an example as its nodes and its server would."""
    take_identity(monkeypatch)
    monkeypatch.chdir(tmp_path)

    def load_app(folder: Path) -> SimpleNamespace:
        for name in [name for name in sys.modules if name.split(".")[0] == "digits_app"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.syspath_prepend(folder)
        parts = ("task", "client_app", "server_app")
        modules = {part: importlib.import_module(f"digits_app.{part}") for part in parts}
        config = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
        return SimpleNamespace(**modules, config=config["tool"]["flwr"]["app"]["config"])

    return load_app


def context(app: SimpleNamespace, node: int) -> Context:
    place = {"partition-id": NODES.index(node), "num-partitions": len(NODES)}
    return Context(1, node, place, RecordDict(), app.config)


def make_grid(app: SimpleNamespace) -> OwnGrid:
    contexts = {node: context(app, node) for node in NODES}
    answer = app.client_app.app
    return OwnGrid(lambda message: answer(message, contexts[message.metadata.dst_node_id]), NODES)


def label_table(app: SimpleNamespace) -> np.ndarray:
    """Return how many of each digit every site trains on."""
    labels = [app.task.load_data(context(app, node))[1] for node in NODES]
    return np.array([count_labels(some, "multiclass", 10).positive for some in labels])


def test_the_balanced_app_is_theirs_plus_six_changed_lines():
    theirs, balanced = texts(THEIRS), texts(BALANCED)
    assert theirs.keys() == balanced.keys()
    marks = [
        line
        for name in theirs
        for line in difflib.unified_diff(theirs[name], balanced[name], n=0, lineterm="")
        if not line.startswith(("---", "+++", "@@"))
    ]
    added = [line for line in marks if line[0] == "+"]
    taken = [line for line in marks if line[0] == "-"]
    assert len(added) == 6
    assert len(taken) == 3
    for word in ("PNBLoss", "report_label_statistics", "ClientBalancedStrategy"):
        assert sum(word in line for line in added) == 2


def test_theirs_knows_nothing_of_fedbb():
    assert not any("fedbb" in line for lines in texts(THEIRS).values() for line in lines)


def test_the_page_shows_the_six_lines_as_they_are():
    page = (EXAMPLES.parents[1] / "docs" / "flower-own-app.md").read_text("utf-8")
    shown = re.findall(
        r"^([+-])(.*)$", "\n".join(re.findall(r"```diff\n(.*?)```", page, re.S)), re.M
    )
    lines = {sign: {text.strip() for mark, text in shown if mark == sign} for sign in "+-"}
    theirs = {line.strip() for some in texts(THEIRS).values() for line in some}
    balanced = {line.strip() for some in texts(BALANCED).values() for line in some}
    assert lines == {"+": balanced - theirs, "-": theirs - balanced}


def test_the_sites_hold_uneven_digits_and_all_of_them(load):
    counts = label_table(load(THEIRS))
    assert counts.sum() > 1400
    assert np.all(counts.sum(axis=0) > 0)
    assert np.any(counts == 0) or counts.max() > 20 * counts[counts > 0].min()


@pytest.mark.parametrize("folder", [THEIRS, BALANCED], ids=lambda folder: folder.name)
def test_the_app_runs_and_learns(folder, load, caplog):
    app = load(folder)
    caplog.set_level(logging.INFO)
    server = Context(1, 1, {}, RecordDict(), app.config)
    app.server_app.app(make_grid(app), server)
    state = torch.load("final_model.pt", weights_only=True)
    model = app.task.Net()
    model.load_state_dict(state)
    held_out = [app.task.load_data(context(app, node))[2:] for node in NODES]
    x, y = (torch.cat(some) for some in zip(*held_out, strict=True))
    assert float((model(x).argmax(dim=1) == y).float().mean()) > 0.7
    assert not any(record.levelno > logging.INFO for record in caplog.records)
    assert ("3 nodes count, from" in caplog.text) == (folder == BALANCED)


def test_the_balanced_app_weighs_as_cbr_says(load):
    app = load(BALANCED)
    strategy, grid = ClientBalancedStrategy(FedAvg()), make_grid(app)
    start = ArrayRecord(app.task.Net().state_dict())
    messages = strategy.configure_train(1, start, ConfigRecord({"lr": 0.1}), grid)
    arrays, _ = strategy.aggregate_train(1, grid.send_and_receive(messages))
    weights = client_weights(label_table(app))
    assert strategy.shares == pytest.approx(dict(zip(NODES, weights, strict=True)))
    assert [row.weight for row in strategy.weights] == list(strategy.shares.values())
    sizes = label_table(app).sum(axis=1)
    assert [row.by_samples for row in strategy.weights] == pytest.approx(sizes / sizes.sum())
    assert max(weights) > 1.2 * min(weights)
    assert arrays.keys() == start.keys()


def test_their_replies_have_no_card_and_are_refused_with_the_remedy(load, caplog):
    app = load(THEIRS)
    strategy, grid = ClientBalancedStrategy(FedAvg()), make_grid(app)
    start = ArrayRecord(app.task.Net().state_dict())
    messages = strategy.configure_train(1, start, ConfigRecord({"lr": 0.1}), grid)
    assert strategy.aggregate_train(1, grid.send_and_receive(messages)) == (None, None)
    assert caplog.text.count("its ClientApp needs the mod report_label_statistics") == 3


@pytest.mark.slow
@pytest.mark.flower
@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's own
def test_the_balanced_app_runs_on_real_nodes(federation, load, tmp_path):
    app = load(BALANCED)
    short = {"num-server-rounds": 1, "local-epochs": 1, "fraction-evaluate": 0.0}
    run = federation.submit(BALANCED, {**short, "save-to": str(tmp_path / "model.pt")})
    assert federation.wait(run, 150) == "finished:completed"
    torch.manual_seed(0)
    start = app.task.Net().state_dict()
    trained = torch.load(tmp_path / "model.pt", weights_only=True)
    assert start.keys() == trained.keys()
    assert not any(torch.equal(start[name], tensor) for name, tensor in trained.items())
    assert all(torch.isfinite(tensor).all() for tensor in trained.values())
