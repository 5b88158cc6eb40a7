"""Tables whose words are those of the other reports, with numbers to sort by."""

import math

import pytest

from fedbb.report.groups import gather, group
from fedbb.report.method_comparison import compare_methods, final_table
from fedbb.report.site.sheets import BLANK, best_sheet, difference_sheet, final_sheet, sheets_of
from helpers.run_builder import Sketch, build_all


@pytest.fixture(scope="module")
def parts(runs):
    return [compare_methods(one) for one in group(gather([runs]).runs)]


def words(row):
    return tuple(cell if isinstance(cell, str) else cell[0] for cell in row)


def test_rows_are_as_long_as_their_heads(parts):
    sheets = sheets_of(parts)
    assert [sheet.name for sheet in sheets] == ["final", "differences", "fairness", "best", "runs"]
    for sheet in sheets:
        assert {len(row) for row in sheet.rows} == {len(sheet.head)}
        assert "data" in sheet.head
        assert "method" in sheet.head


def test_words_are_those_of_the_text_table_and_numbers_their_means(parts):
    sheet = final_sheet(parts[:1])
    expected = final_table(parts[0].rows)
    assert [words(row)[1:-1] for row in sheet.rows] == list(expected.rows)
    means = {(row.method, row.metric): row.final.mean for row in parts[0].rows}
    for row in sheet.rows:
        assert row[2][1] == pytest.approx(means[row[1], "balanced_accuracy"], abs=1e-6)


def test_a_metric_of_another_task_is_blank(parts):
    sheet = final_sheet(parts)
    auroc = sheet.head.index("AUROC")
    assert [row[auroc] == BLANK for row in sheet.rows] == [True, True, True, False, False]


def test_a_best_round_chosen_on_test_data_is_called_flattering(parts, tmp_path):
    assert "better than it is" in best_sheet(parts).note
    honest = build_all(tmp_path, [Sketch(validation=True)])
    (comparison,) = group(gather(honest).runs)
    sheet = best_sheet([compare_methods(comparison)])
    assert sheet.note == ""
    assert sheet.rows[0][-1] == "validation"


def test_without_a_rival_there_are_no_differences(tmp_path):
    (comparison,) = group(gather(build_all(tmp_path, [Sketch("fedbb")])).runs)
    found = [compare_methods(comparison)]
    assert difference_sheet(found).rows == ()
    assert "differences" not in [sheet.name for sheet in sheets_of(found)]


def test_no_number_to_sort_by_is_undefined(parts):
    for sheet in sheets_of(parts):
        for row in sheet.rows:
            orders = [cell[1] for cell in row if not isinstance(cell, str)]
            assert all(order is None or math.isfinite(order) for order in orders)
