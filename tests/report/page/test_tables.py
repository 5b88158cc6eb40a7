"""Tables whose words are those of the other reports, with numbers to sort by."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb._util.table import to_page
from fedbb.records import Task
from fedbb.report.groups import gather, group
from fedbb.report.method_comparison import compare_methods, final_table
from fedbb.report.page.tables import (
    BLANK,
    best_scores,
    class_scores,
    client_scores,
    deviation,
    differences,
    fairness_of,
    final_scores,
    lowest,
    report_tables,
)
from fedbb.report.results import RunResult, read_runs
from fedbb.runs.metadata import ClientRecord, FederationRecord
from helpers.run_builder import Sketch, build_all


@pytest.fixture(scope="module")
def parts(runs):
    return [compare_methods(one) for one in group(gather([runs]).runs)]


def test_every_table_can_be_filtered_by_data_and_method(parts):
    tables = report_tables(parts)
    assert list(tables) == ["final", "differences", "fairness", "best", "runs"]
    for table in tables.values():
        assert {"data", "method"} <= set(table.head)


def test_words_are_those_of_the_text_table_and_numbers_their_means(parts):
    table = final_scores(parts[:1])
    expected = final_table(parts[0].rows)
    assert [row[1:-1] for row in table.texts] == list(expected.rows)
    means = {(row.method, row.metric): row.final.mean for row in parts[0].rows}
    for row in table.rows:
        assert row[2].value == means[row[1], "balanced_accuracy"]


def test_a_metric_of_another_task_is_blank(parts):
    table = final_scores(parts)
    auroc = table.head.index("AUROC")
    assert [row[auroc] == BLANK for row in table.rows] == [True, True, True, False, False]


def test_a_best_round_chosen_on_test_data_is_called_flattering(parts, tmp_path):
    assert "overestimates" in best_scores(parts).note
    honest = build_all(tmp_path, [Sketch(validation=True)])
    (comparison,) = group(gather(honest).runs)
    table = best_scores([compare_methods(comparison)])
    assert table.note == ""
    assert table.rows[0][-1] == "validation"


def test_without_a_rival_there_are_no_differences(tmp_path):
    (comparison,) = group(gather(build_all(tmp_path, [Sketch("fedbb")])).runs)
    found = [compare_methods(comparison)]
    assert differences(found).rows == ()
    assert "differences" not in report_tables(found)


def test_no_number_to_sort_by_is_undefined(parts):
    for table in report_tables(parts).values():
        for row in to_page(table)["rows"]:
            orders = [cell[1] for cell in row if not isinstance(cell, str)]
            assert all(order is None or math.isfinite(order) for order in orders)


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
