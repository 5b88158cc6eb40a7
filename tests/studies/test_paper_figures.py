"""The figures of the paper's ideas: what they draw are PNB's own weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from studies.paper_figures import (
    EXAMPLE,
    by_label_set,
    example_sets,
    process,
    rank_correlation,
    table_sets,
    weigh_sets,
)

import fedbb

TABLE = """Image Index,Finding Labels,Patient ID
1.png,No Finding,1
2.png,No Finding,1
3.png,No Finding,2
4.png,Infiltration,2
5.png,Infiltration,3
6.png,Hernia,4
7.png,Hernia|Infiltration,4
"""


@given(samples=st.lists(st.integers(1, 500), min_size=4, max_size=4))
def test_the_mean_weight_over_all_samples_is_one(samples) -> None:
    sets = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=float)
    made = weigh_sets(sets, np.array(samples, dtype=float))
    assert made.weights @ made.samples / sum(samples) == pytest.approx(1)


def test_the_weights_are_those_of_the_loss() -> None:
    """At logits 0 each case has the loss log 2, so that the losses of sets are as their weights."""
    made = example_sets(10_000)
    positive = made.samples @ made.sets
    loss = fedbb.PNBLoss(
        positive, samples=10_000, task="multilabel", beta=0.9999999, tau=10.0, reduction="none"
    )
    targets = torch.tensor(made.sets, dtype=torch.float32)
    losses = loss(torch.zeros(targets.shape), targets).mean(dim=1).numpy()
    assert losses / losses[0] == pytest.approx(made.weights / made.weights[0], rel=1e-5)


def test_the_example_has_all_sets_of_three_classes_the_most_frequent_first() -> None:
    made = example_sets()
    assert len(np.unique(made.sets, axis=0)) == 8
    assert (np.diff(made.samples) <= 0).all()
    assert made.samples @ made.sets / made.samples.sum() == pytest.approx(EXAMPLE)
    assert rank_correlation(made) == pytest.approx(-1)


def test_a_table_gives_its_sets_and_their_samples(tmp_path) -> None:
    (tmp_path / "labels.csv").write_text(TABLE)
    made, classes = table_sets(tmp_path / "labels.csv")
    held = [",".join(np.array(classes)[row == 1]) for row in made.sets]
    assert dict(zip(held, made.samples.tolist(), strict=True)) == {
        "": 3,
        "Infiltration": 2,
        "Hernia": 1,
        "Hernia,Infiltration": 1,
    }


def test_equal_frequencies_share_their_rank() -> None:
    scipy_stats = pytest.importorskip("scipy.stats")
    sets = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=float)
    made = weigh_sets(sets, np.array([9.0, 4.0, 4.0, 1.0]))
    expected = scipy_stats.spearmanr(made.samples, made.weights).statistic
    assert rank_correlation(made) == pytest.approx(expected)


def test_both_figures_are_drawn(tmp_path) -> None:
    (tmp_path / "labels.csv").write_text(TABLE)
    sets, clients = by_label_set(tmp_path / "labels.csv"), process()
    assert [axes.get_title(loc="left") for axes in sets.axes[:2]] == [
        "three independent classes",
        "NIH ChestX-ray14",
    ]
    shown = [text.get_text() for axes in clients.axes for text in axes.texts]
    assert {"90", "9", "1"} <= set(shown)
