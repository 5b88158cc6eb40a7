"""What a run hands its caller: mappings of scores, a history, a table, and two forms of a model."""

import math
import sys

import numpy as np
import pytest
import torch
from torch import nn

import fedbb
from fedbb._util.table import make_frame
from fedbb.errors import RunError
from fedbb.runs.result import RoundRecord

CLASSES = 3


def dataset(normalize=False):
    """Images of uint8 whose brightest row is the class."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, 90)
    images = rng.integers(0, 90, (90, 1, 4, 4), dtype=np.uint8)
    images[np.arange(90), 0, labels] += 150
    parts = (images[:60], labels[:60], images[60:], labels[60:])
    return fedbb.Dataset.from_arrays(*parts, normalize=normalize)


def simulate(data, **options):
    clients = fedbb.partition.iid(data, clients=3)
    options = {"rounds": 3, "local": fedbb.LocalConfig(batch_size=8, lr=0.05), **options}
    network = lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, CLASSES))  # noqa: E731
    return fedbb.simulate(data, clients, model=network, **options)


@pytest.fixture(scope="module")
def result():
    return simulate(dataset(), validation=0.2)


def line(**changes):
    """One line of rounds.jsonl."""
    scores = {"macro": {"accuracy": 0.5, "auroc": None}, "per_class": {"recall": [1.0, None]}}
    clients = [
        {"client": 0, "weight": 0.25, "steps": 2, "train_loss": 1.0},
        {"client": 1, "weight": 0.75, "steps": 2, "train_loss": 2.0},
        {"client": 2, "weight": 0.0, "steps": 0, "train_loss": None},
    ]
    record = {"round": 4, "clients": clients, "absent": [], "scores": {"test": scores}}
    return {**record, "seconds": {"train": 1.5, "score": 0.5}, **changes}


def test_a_round_has_floats_where_a_score_is_undefined_and_a_weighted_loss():
    record = RoundRecord.from_record(line())
    assert record.scores["test"]["accuracy"] == 0.5
    assert math.isnan(record.scores["test"]["auroc"])
    assert record.per_class["test"]["recall"][0] == 1.0
    assert math.isnan(record.per_class["test"]["recall"][1])
    assert record.train_loss == pytest.approx(0.25 * 1.0 + 0.75 * 2.0)
    assert (record.seconds, record.state) == (2.0, None)
    assert record.flat()["test_accuracy"] == 0.5
    assert record.flat()["clients"] == 3


def test_the_loss_of_a_round_without_losses_is_undefined():
    hidden = [{"client": 0, "weight": None, "steps": 1, "train_loss": None}]
    assert math.isnan(RoundRecord.from_record(line(clients=hidden)).train_loss)


def test_scores_are_mappings_from_metric_to_float(result):
    last, best = result.history[-1], result.history[result.best_round - 1]
    assert dict(result.final) == dict(last.scores["test"])
    assert dict(result.best) == dict(best.scores["test"])
    assert set(result.final) >= {"accuracy", "balanced_accuracy", "f1", "auroc"}
    assert all(isinstance(value, float) for value in result.final.values())
    assert set(result.history[0].scores) == {"test", "validation"}


def test_the_text_of_a_result_says_what_was_run_and_how_it_ended(result):
    text = repr(result)
    assert "fedavg on arrays: 3 rounds" in text
    assert f"accuracy {result.final['accuracy']:.4f}" in text
    assert f"best round {result.best_round} by balanced_accuracy on validation data" in text
    assert "saved" not in text


def test_the_history_is_a_table(result):
    frame = result.to_frame()
    assert frame["round"].tolist() == [1, 2, 3]
    expected = [record.scores["validation"]["f1"] for record in result.history]
    assert frame["validation_f1"].tolist() == expected
    assert {"train_loss", "clients", "seconds", "test_accuracy"} <= set(frame.columns)


def test_without_pandas_the_table_says_what_to_install(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"fedbb\[pandas\]"):
        result.to_frame()
    with pytest.raises(ImportError, match=r"fedbb\[pandas\]"):
        make_frame([])
    assert result.final["accuracy"] > 0


@pytest.mark.parametrize("normalize", [False, True])
def test_the_predictor_takes_raw_pixels_and_the_model_what_it_was_trained_on(normalize):
    data = dataset(normalize)
    trained = simulate(data, validation=0.2)
    probabilities = trained.predictor.predict(data.test.inputs)
    assert probabilities.sum(axis=1) == pytest.approx(1.0)
    accuracy = (probabilities.argmax(axis=1) == data.test.labels).mean()
    assert accuracy == pytest.approx(trained.final["accuracy"])
    inputs = torch.tensor(data.test.inputs).float() / 255
    if normalize:
        inputs = (inputs - data.mean[0]) / data.std[0]
    with torch.no_grad():
        logits = trained.model(inputs)
    assert logits.softmax(dim=1).numpy() == pytest.approx(probabilities, abs=1e-6)
    assert not trained.model.training
    assert trained.predictor.classes == data.classes


def test_the_best_model_is_that_of_the_best_round():
    data = dataset()
    # So large a rate that later rounds are worse than an earlier one.
    trained = simulate(data, rounds=4, local=fedbb.LocalConfig(lr=3.0, batch_size=4))
    assert trained.best_round < 4
    guesses = trained.best_predictor.predict(data.test.inputs).argmax(axis=1)
    assert (guesses == data.test.labels).mean() == pytest.approx(trained.best["accuracy"])
    assert not torch.equal(trained.best_model[1].weight, trained.model[1].weight)


class Narrow(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, CLASSES)

    def forward(self, images):
        return self.fc(images.flatten(1))


def test_a_saved_model_says_how_its_network_can_be_had(tmp_path):
    data = dataset()
    clients = fedbb.partition.iid(data, clients=2)
    for name, model in (("class", Narrow), ("lambda", lambda: Narrow())):
        fedbb.simulate(data, clients, model=model, rounds=1, out=tmp_path / name)
    with pytest.raises(RunError, match=r"Narrow; give it in Python.*--allow-code"):
        fedbb.load_model(tmp_path / "class")
    with pytest.raises(RunError, match=r"<lambda>; give it in Python: [^,]*, model=…\)$"):
        fedbb.load_model(tmp_path / "lambda")
    for name in ("class", "lambda"):
        loaded = fedbb.load_model(tmp_path / name, model=Narrow)
        assert loaded.predict(data.test.inputs).shape == (30, CLASSES)
