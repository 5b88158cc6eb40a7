"""The table from counts to multipliers, with numbers worked by hand.

β = ½ makes E(1) = 1 and E(2) = 1.5. One of three: α⁺ = 1.5 / 2.5 = .6. Two of three: α⁺ = .4.
With μ = 2 the entries weigh 2·α⁺·α⁺ and 2·α⁺·α⁻: .72 and .48, .32 and .48.
"""

from dataclasses import astuple

import pytest
import torch

from fedbb.losses.pnb import PNBLoss

TABLE = """\
class     A  B  E(A)  E(B)       α⁺       α⁻  weight⁺  weight⁻
rare      1  2  1.00  1.50  0.60000  0.40000  0.72000  0.48000
frequent  2  1  1.50  1.00  0.40000  0.60000  0.32000  0.48000"""


def make(task: str) -> PNBLoss:
    return PNBLoss([1, 2], samples=3, task=task, beta=0.5, mu=2.0)


def test_rows_lead_from_counts_to_multipliers():
    first, second = make("multilabel").explain(["rare", "frequent"])
    assert astuple(first) == pytest.approx(("rare", 1, 2, 1, 1.5, 0.6, 0.4, 0.72, 0.48))
    assert astuple(second) == pytest.approx(("frequent", 2, 1, 1.5, 1, 0.4, 0.6, 0.32, 0.48))


def test_printed_form_is_an_aligned_table():
    assert str(make("multilabel").explain(("rare", "frequent"))) == TABLE


def test_classes_without_names_are_numbered():
    assert [row.name for row in make("multilabel").explain()] == ["0", "1"]


def test_multiclass_cases_have_one_factor_and_no_negatives():
    rows = list(make("multiclass").explain())
    assert [row.positive_weight for row in rows] == pytest.approx([1.2, 0.8])
    assert [row.negative_weight for row in rows] == [0, 0]


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_the_multipliers_shown_are_those_at_work(task):
    loss = PNBLoss([900, 90, 0], samples=1000, task=task, class_factor="effective", mu="unit")
    rows = loss.explain()
    for name in ("alpha_positive", "alpha_negative", "positive_weight", "negative_weight"):
        shown = torch.tensor([getattr(row, name) for row in rows])
        torch.testing.assert_close(shown, getattr(loss, name))


def test_names_that_do_not_fit_the_classes_are_refused():
    with pytest.raises(ValueError, match="1 names do not fit 2 classes"):
        make("multilabel").explain(["only one"])
