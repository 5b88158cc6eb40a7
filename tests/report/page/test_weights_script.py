"""The page's weights: its script against the Python functions, option by option, in Chromium."""

import itertools

import numpy as np
import pytest

from fedbb.imbalance import balance_weights, effective_number
from fedbb.losses.pnb import PNB, weigh
from fedbb.records import LabelCounts, Task
from fedbb.report.page.shell import read_part
from helpers.browser import compute

CLOSE = {"rel": 1e-9, "abs": 1e-12}
OPTIONS = {
    "beta": [0.0, 0.6, 0.9999, 0.9999999],
    "tau": [0.1, 1.0, 10.0],
    "mu": [0.3, 4.0, "unit"],
    "class_factor": ["alpha", "effective"],
    "alpha_min": [0.0, 0.05, 0.5],
}
COUNTS = {
    "uneven": ([9000.0, 700.0, 12.0, 1.0], [713.0, 9013.0, 9701.0, 9712.0]),
    "absent class": ([40.0, 0.0, 3.0], [3.0, 43.0, 40.0]),
    "one class": ([25.0], [0.0]),
    "no case": ([0.0, 0.0], [0.0, 0.0]),
    "only negatives": ([0.0, 0.0], [8.0, 3.0]),
}


@pytest.fixture(scope="module")
def script():
    return read_part("weights.js")


def expected_shares(counts, found, task):
    held = np.stack([counts.positive, counts.negative * (task is Task.MULTILABEL)])
    classed = normalize(held * np.stack([found.positive, found.negative]))
    cased = normalize(held * np.stack([found.alpha_positive, found.alpha_negative]))
    return [normalize(held), classed if task is Task.MULTICLASS else cased, classed]


def normalize(values):
    return values / values.sum() if values.sum() > 0 else values


def test_every_option_of_pnb_weighs_as_in_python(chromium, script):
    grid = [
        dict(zip(OPTIONS, values, strict=True)) for values in itertools.product(*OPTIONS.values())
    ]
    inputs = [
        [option, list(counts), str(task)]
        for option in grid
        for counts in COUNTS.values()
        for task in Task
    ]
    expression = """inputs.map(([pnb, [positive, negative], task]) => {
      const found = weights.weigh(pnb, positive, negative, task === "multiclass");
      return { ...found, shares: weights.shares(positive, negative, found, task === "multiclass") };
    })"""
    answers = compute(chromium, [script], expression, inputs)
    assert len(answers) == 216 * 5 * 2
    for (option, (positive, negative), task), answer in zip(inputs, answers, strict=True):
        counts = LabelCounts(np.array(positive), np.array(negative), 0)
        found = weigh(PNB(**option), counts, Task(task))
        place = (option, positive, task)
        assert answer["mean"] == pytest.approx(found.mean, **CLOSE), place
        assert answer["alpha"] == pytest.approx(found.alpha_positive, **CLOSE), place
        assert answer["positive"] == pytest.approx(found.positive, **CLOSE), place
        assert answer["negative"] == pytest.approx(found.negative, **CLOSE), place
        shares = expected_shares(counts, found, Task(task))
        assert np.array(answer["shares"]) == pytest.approx(np.array(shares), **CLOSE), place


def test_effective_numbers_and_client_weights_are_those_of_python(chromium, script):
    rng = np.random.default_rng(0)
    inputs = []
    for _ in range(200):
        size = int(rng.integers(1, 12))
        samples = np.floor(10 ** rng.uniform(0, 5, size))
        samples[1:] *= rng.random(size - 1) < 0.9
        beta = float(rng.choice([0.0, 1 - 10 ** -rng.uniform(0.01, 8)]))
        spread = (rng.random(size) ** 4).tolist()
        inputs.append(
            [samples.tolist(), spread, beta, float(10 ** rng.uniform(-1, 3)), rng.random()]
        )
    expression = """inputs.map(([samples, spread, beta, tau, gamma]) => [
      samples.map((count) => weights.effective(count, beta, tau)),
      weights.clients(spread, samples, gamma)])"""
    answers = compute(chromium, [script], expression, inputs)
    for (samples, spread, beta, tau, gamma), (effective, clients) in zip(
        inputs, answers, strict=True
    ):
        assert effective == pytest.approx(effective_number(samples, beta, tau), **CLOSE)
        assert clients == pytest.approx(balance_weights(spread, samples, gamma=gamma), **CLOSE)
