"""Intervals over patients: the draws, beside a plain loop, and what is made of them."""

from __future__ import annotations

import numpy as np
import pytest
from studies.patient_bootstrap import replicate, summarize, table

from fedbb.rng import stream

LABELS = np.array([[1, 0], [0, 1], [1, 1], [0, 0], [0, 1], [1, 0], [0, 0], [1, 0]], dtype=float)
PATIENTS = np.array(["a", "a", "b", "c", "c", "c", "d", "e"])


def logits_of(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=LABELS.shape) + LABELS


def area(scores: np.ndarray, truth: np.ndarray) -> float:
    """The share of pairs in which the positive case is above the negative one."""
    pairs = [
        (one > other) + (one == other) / 2
        for one in scores[truth == 1]
        for other in scores[truth == 0]
    ]
    return float(np.mean(pairs)) if pairs else float("nan")


def test_a_replicate_is_the_score_of_the_films_of_the_patients_drawn() -> None:
    logits = logits_of(0)
    found = replicate(logits, LABELS, PATIENTS, number=16)
    names = np.unique(PATIENTS)
    drawn = stream(0, "bootstrap").integers(0, 5, (5, 16))
    expected = []
    for column in [np.arange(5), *drawn.T]:
        films = np.concatenate([np.flatnonzero(names[place] == PATIENTS) for place in column])
        areas = [area(logits[films, c], LABELS[films, c]) for c in range(2)]
        expected.append(np.nanmean(areas))
    assert found == pytest.approx(expected)


def test_equal_models_do_not_differ_whoever_is_drawn() -> None:
    one = replicate(logits_of(1), LABELS, PATIENTS, number=32)
    same = replicate(3 * logits_of(1) + 1, LABELS, PATIENTS, number=32)
    rows = summarize({"FedBB": one, "FedAvg": same})
    (difference,) = [row for row in rows if row["what"] == "FedBB − FedAvg"]
    assert (difference["auroc"], difference["low"], difference["high"]) == (0, 0, 0)


def test_the_table_has_a_line_for_each_score_and_difference() -> None:
    better = np.array([0.7, *np.linspace(0.65, 0.75, 101)])
    rows = summarize({"FedBB": better, "FedAvg": better - 0.02})
    made = table([{"skew": "sizes", **row} for row in rows])
    assert "| 10k.1 | FedBB | 70.0 [65.2, 74.8] |" in made
    assert "| 10k.3 | FedBB − FedAvg | +2.0 [+2.0, +2.0] |" in made
