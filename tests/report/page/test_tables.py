"""Tables whose words are those of the other reports, with numbers to sort by."""

import math

import pytest

from fedbb._util.table import to_page
from fedbb.report.groups import gather, group
from fedbb.report.method_comparison import compare_methods, final_table
from fedbb.report.page.tables import BLANK, best_scores, differences, final_scores, report_tables
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
