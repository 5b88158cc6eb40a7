"""The numbers of the paper's tables, against sums taken from its source in another way."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest

from fedbb.paper.tables import PAPER_TABLE, Printed, paper_tables, printed

SUMS = {
    "imbalance-factor": (3, 240.97, 0, 0.0),
    "chest-50-rounds": (48, 80426.96, 36, 10.26),
    "chest-30-rounds": (48, 3196.85, 0, 0.0),
    "central-ceiling": (2, 160.79, 0, 0.0),
    "cifar10-label-skew": (28, 3435.49, 21, 7.51),
    "cifar100-tiny-imagenet": (26, 1248.25, 26, 24.29),
    "long-tail": (28, 1501.91, 0, 0.0),
    "ablation-alpha-beta": (28, 1909.66, 0, 0.0),
    "harmonized": (11, 460.24, 0, 0.0),
    "efficiency": (14, 802.21, 0, 0.0),
    "central-losses": (14, 685.59, 0, 0.0),
    "pnb-cbr-alone": (24, 1575.33, 0, 0.0),
    "hundred-clients": (26, 1450.31, 0, 0.0),
}
"""Numbers, their sum, spreads, their sum: added up from the stream of digits, table by table."""

LABELS = {
    "imbalance-factor": "tab:1",
    "chest-50-rounds": "tab:50",
    "chest-30-rounds": "tab:2",
    "central-ceiling": "tab:CZ",
    "cifar10-label-skew": "tab:3_1",
    "cifar100-tiny-imagenet": "tab:3_2",
    "long-tail": "tab:4",
    "ablation-alpha-beta": "tab:10",
    "harmonized": "tab:6",
    "efficiency": "tab:efficiency",
    "central-losses": "tab:7",
    "pnb-cbr-alone": "tab:8",
    "hundred-clients": "tab:9",
}
"""What the paper's source calls each table."""


def test_every_table_has_its_numbers() -> None:
    assert sorted(SUMS) == sorted(LABELS) == paper_tables()


@pytest.mark.parametrize("table", SUMS)
def test_numbers_add_up_as_in_the_paper(table: str) -> None:
    numbers = printed(table)
    spreads = [number.spread for number in numbers if number.spread is not None]
    found = (
        len(numbers),
        round(math.fsum(number.mean for number in numbers), 2),
        len(spreads),
        round(math.fsum(spreads), 2),
    )
    assert found == SUMS[table]


@pytest.mark.parametrize("table", SUMS)
def test_no_place_of_a_table_has_two_numbers(table: str) -> None:
    places = [(number.metric, frozenset(number.at.items())) for number in printed(table)]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("table", SUMS)
def test_numbers_stand_in_the_order_of_the_paper(table: str) -> None:
    source = os.environ.get("FEDBB_PAPER_TEX")
    if not source:
        pytest.skip("FEDBB_PAPER_TEX names no source of the paper")
    ours = [(number.mean, number.spread) for number in printed(table)]
    assert ours == _read_source(Path(source).read_text(encoding="utf-8"), LABELS[table])


def _read_source(source: str, label: str) -> list[tuple[float, float | None]]:
    """Return each mean and spread in a table of the source, row by row."""
    before = source[: source.index(f"\\label{{{label}}}")]
    body = before[before.rindex("\\begin{tabular}") : before.rindex("\\end{tabular}")]
    body = re.sub(r"\\(delta|alpha|beta) = [\d.]+", "", body)
    # A misprint, and the factors that name the rows of the first table.
    body = body.replace("0.0.58", "0.58")
    body = re.sub(r"(?m)^0\.\d &", "&", body)
    found = []
    for cell in re.split(r"&|\\\\", body):
        mean = re.search(r"(?<!pm)\b(\d+\.\d+|\d+(?=m\b))", cell)
        spread = re.search(r"\\pm([\d.]+)", cell)
        if mean:
            found.append((float(mean[1]), float(spread[1]) if spread else None))
    return found


def test_with_cbr_repeats_a_single_run_of_the_main_tables() -> None:
    """Table 12 has a run whose distance from the mean is the printed ±: docs/paper-notes.md, 17."""
    alone = {n.at["data"]: n.mean for n in printed("pnb-cbr-alone") if n.at["method"] == "FedBB"}
    checked = 0
    for table in ("chest-50-rounds", "cifar10-label-skew", "cifar100-tiny-imagenet"):
        for number in printed(table):
            place = f"{number.at.get('data', 'CIFAR-10')}, {number.at.get('skew')}"
            if number.at["method"] == "FedBB" and place in alone and number.spread is not None:
                assert abs(alone[place] - number.mean) == pytest.approx(number.spread, abs=1e-9)
                checked += 1
    assert checked == 8


def test_the_efficiency_table_is_the_one_fedbb_cost_shows() -> None:
    numbers = {(n.at["method"].lower(), n.metric): n.mean for n in printed("efficiency")}
    shown = {
        (method, metric): value
        for method, row in PAPER_TABLE.items()
        for metric, value in (("parameters", row.parameters), ("macs", row.macs))
    }
    assert numbers == shown


def test_scores_are_percents_and_spreads_small() -> None:
    scores: list[Printed] = [
        number
        for table in SUMS
        for number in printed(table)
        if number.metric in ("accuracy", "auroc")
    ]
    assert all(0 < number.mean < 100 for number in scores)
    assert all(number.spread is None or 0 < number.spread < 20 for number in scores)
