"""Fairness over classes and clients, by hand and against loops."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.records import Task
from fedbb.report.groups import group
from fedbb.report.page.fairness import class_scores, client_scores, deviation, fairness_of, lowest
from fedbb.report.results import RunResult, read_runs
from fedbb.runs.metadata import ClientRecord, FederationRecord
from helpers.run_builder import Sketch, build_all


def run_with(counts):
    clients = tuple(
        ClientRecord(index, int(sum(row)), None, 0.5, 0.5, positives=tuple(row))
        for index, row in enumerate(counts)
    )
    facts = FederationRecord("toy", Task.MULTICLASS, ("a", "b"), 10, {}, (6.0, 4.0), clients)
    return RunResult("run", None, facts, (), None, {})


def test_a_clients_score_is_weighed_by_its_own_labels():
    # 3 of 4 labels are a: 0.75 · 0.8 + 0.25 · 0.4 = 0.7; the second client has only b.
    scores = client_scores(run_with([(3.0, 1.0), (0.0, 5.0)]), np.array([0.8, 0.4]))
    assert scores == pytest.approx([0.7, 0.4])


def test_classes_without_a_score_are_left_out_of_the_mix():
    scores = client_scores(run_with([(3.0, 1.0), (0.0, 5.0)]), np.array([0.8, math.nan]))
    assert scores[0] == pytest.approx(0.8)
    assert math.isnan(scores[1])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5))
def test_client_scores_equal_a_loop(counts):
    scores = np.array([0.3, 0.9])
    for row, found in zip(counts, client_scores(run_with(counts), scores), strict=True):
        drawn = [0.3] * row[0] + [0.9] * row[1]
        if drawn:
            assert found == pytest.approx(sum(drawn) / len(drawn))
        else:
            assert math.isnan(found)


def test_the_record_equals_a_slow_reference(tmp_path):
    build_all(tmp_path, [Sketch("fedbb", seed) for seed in range(3)])
    (comparison,) = group(read_runs(sorted(tmp_path.iterdir())))
    (part,) = comparison.methods
    found = fairness_of(comparison, part)
    finals = [list(run.summary.final.scores["test"].per_class["recall"]) for run in part.runs]
    means = [sum(column) / 3 for column in zip(*finals, strict=True)]
    worst = means.index(min(means))
    assert found.worst_class == comparison.federation.classes[worst]
    assert found.worst_class_score.mean == pytest.approx(min(means))
    spreads = [math.sqrt(sum((s - sum(r) / 10) ** 2 for s in r) / 10) for r in finals]
    assert found.class_deviation.mean == pytest.approx(sum(spreads) / 3)
    counts = np.mean([run.federation.class_counts for run in part.runs], axis=0)
    order = sorted(range(10), key=lambda index: -counts[index])
    assert found.head.mean == pytest.approx(np.mean([[r[c] for c in order[:3]] for r in finals]))
    assert found.tail.mean == pytest.approx(np.mean([[r[c] for c in order[-3:]] for r in finals]))
    mixes = [
        min(
            sum(n * s for n, s in zip(client.positives, row, strict=True)) / sum(client.positives)
            for client in run.federation.known
            if sum(client.positives) > 0
        )
        for run, row in zip(part.runs, finals, strict=True)
    ]
    assert found.worst_client.mean == pytest.approx(sum(mixes) / 3)
    assert found.worst_client.number == 3


def test_scores_nobody_has_are_undefined_not_zero(tmp_path):
    build_all(tmp_path, [Sketch(undefined=tuple(range(10)))])
    (comparison,) = group(read_runs(tmp_path.iterdir()))
    found = fairness_of(comparison, comparison.methods[0])
    assert found.worst_class == ""
    assert math.isnan(found.worst_class_score.mean)
    assert math.isnan(found.worst_client.mean)
    assert np.isnan(class_scores(comparison, comparison.methods[0])).all()


def test_spread_and_least_of_nothing_are_undefined():
    assert math.isnan(deviation(np.array([math.nan])))
    assert math.isnan(lowest(np.array([])))
    assert deviation(np.array([1.0, 3.0, math.nan])) == 1.0
    assert lowest(np.array([3.0, 1.0, math.nan])) == 1.0
