"""The page's sliders: its script against the Python functions on random inputs, in Chromium."""

import json

import numpy as np
import pytest

from fedbb.analysis.measures import loss_shares
from fedbb.imbalance.cases import case_weights, effective_number
from fedbb.imbalance.clients import balance_weights
from fedbb.losses.pnb import PNB, weigh
from fedbb.records import LabelCounts, Task
from fedbb.report.site.shell import read_part
from helpers.browser import compute, needs_chromium

pytestmark = needs_chromium

NUMBER = 300


def random_inputs():
    rng = np.random.default_rng(0)
    inputs = []
    for _ in range(NUMBER):
        classes, clients = rng.integers(1, 12, 2)
        positive = np.floor(10 ** rng.uniform(-1, 6, classes))
        negative = np.floor(10 ** rng.uniform(-1, 6, classes))
        beta = float(rng.choice([0.0, 1 - 10 ** -rng.uniform(0.01, 8)]))
        samples = np.floor(10 ** rng.uniform(0, 5, clients))
        samples[1:] *= rng.random(clients - 1) < 0.9
        inputs.append(
            {
                "positive": positive.tolist(),
                "negative": negative.tolist(),
                "beta": beta,
                "tau": float(10 ** rng.uniform(-1, 3)),
                "gamma": float(rng.random()),
                "dispersions": (rng.random(clients) ** 4).tolist(),
                "samples": samples.tolist(),
            }
        )
    return inputs


EXPRESSION = """inputs.map(({positive, negative, beta, tau, gamma, dispersions, samples}) => {
  const alpha = weights.alphas(positive, negative, beta, tau);
  return {
    effective: positive.map((count) => weights.effective(count, beta, tau)),
    alpha,
    multiclass: weights.shares(positive, negative, alpha, true),
    multilabel: weights.shares(positive, negative, alpha, false),
    means: [true, false].map((multiclass) => weights.mean(positive, negative, alpha, multiclass)),
    clients: weights.clients(dispersions, samples, gamma),
  };
})"""


def test_the_pages_functions_give_what_those_of_python_give(tmp_path):
    inputs = random_inputs()
    script = read_part("weights.js", "fedbb.report.inspection")
    answers = compute([script, f"const inputs = {json.dumps(inputs)};"], EXPRESSION, tmp_path)
    assert len(answers) == NUMBER
    for given, answer in zip(inputs, answers, strict=True):
        positive, negative = np.array(given["positive"]), np.array(given["negative"])
        beta, tau = given["beta"], given["tau"]
        close = {"rel": 1e-9, "abs": 1e-12}
        assert answer["effective"] == pytest.approx(effective_number(positive, beta, tau), **close)
        alpha, _ = case_weights(positive, negative, beta=beta, tau=tau)
        assert answer["alpha"] == pytest.approx(alpha, **close)
        for task in Task:
            weights = weigh(PNB(beta, tau), LabelCounts(positive, negative, 0), task)
            shares = np.array(loss_shares(positive, negative, weights, task))
            assert np.array(answer[str(task)]) == pytest.approx(shares, **close)
        counts = LabelCounts(positive, negative, 0)
        means = [weigh(PNB(beta, tau, 1.0), counts, task).mean for task in Task]
        assert answer["means"] == pytest.approx(means, **close)
        balanced = balance_weights(given["dispersions"], given["samples"], gamma=given["gamma"])
        assert answer["clients"] == pytest.approx(balanced, **close)
