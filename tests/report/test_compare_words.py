import doctest
import json
import math
from dataclasses import replace

import pytest

from fedbb.report import compare_words
from fedbb.report.compare import ClassScore, Gap, contrast
from fedbb.report.compare_words import (
    Tally,
    as_json,
    effective_clients,
    head_and_tail,
    notes,
    tally,
    verdict,
)
from fedbb.report.interval import Interval
from fedbb.report.sides import read_side
from helpers.run_builder import Sketch, build


@pytest.fixture
def found(tmp_path):
    for method in ("fedavg", "fedbb"):
        for seed in range(2):
            build(tmp_path / method / str(seed), Sketch(method=method, seed=seed, rounds=2))
    return contrast(read_side(str(tmp_path / "fedavg")), read_side(str(tmp_path / "fedbb")))


def with_gap(found, mean, low, high, pairs=5, ahead=5, behind=0):
    gap = Gap(mean, Interval(low, high), pairs, ahead, behind)
    return replace(found, scores=(replace(found.scores[0], gap=gap), *found.scores[1:]))


def class_score(cases, gap):
    return ClassScore("name", cases, 0.5, 0.5 + gap, gap)


@pytest.mark.parametrize(
    ("gap", "sentence"),
    [
        ((0.05, 0.01, 0.09), "B is ahead of A (+5.0 points of balanced accuracy, "),
        ((-0.05, -0.09, -0.01, 5, 0, 5), "B is behind A (−5.0 points"),
        ((0.05, -0.01, 0.11, 5, 4, 1), "A and B are not clearly apart (+5.0 points"),
        ((0.05, math.nan, math.nan, 1, 1, 0), "one seed, which proves nothing."),
        ((0.05, math.nan, math.nan, 0, 0, 0), "no seed in common, which proves nothing."),
        ((0.0, 0.0, 0.0, 5, 0, 0), "A and B score the same on all 5 seeds."),
        ((math.nan, math.nan, math.nan, 0, 0, 0), "No seed has a balanced accuracy of both"),
    ],
)
def test_the_verdict_follows_the_interval(found, gap, sentence):
    assert sentence in verdict(with_gap(found, *gap))


def test_head_and_tail_are_halves_by_cases_the_middle_in_none():
    lines = [class_score(cases, 0.1) for cases in (1, 50, 7, 90, 20)]
    head, tail = head_and_tail(lines)
    assert [line.cases for line in head] == [90, 50]
    assert [line.cases for line in tail] == [7, 1]
    assert head_and_tail(lines[:1]) == head_and_tail([lines[0], lines[0]]) == ((), ())


def test_the_tally_leaves_out_what_is_undefined():
    lines = [class_score(1, gap) for gap in (0.1, 0.2, 0.0, -0.1, math.nan)]
    assert tally(lines) == Tally(won=2, lost=1, alike=1)


def test_as_many_equal_weights_are_as_many_clients():
    assert effective_clients([0.25] * 4) == pytest.approx(4)
    assert effective_clients([1.0, 0.0]) == 1


def test_what_a_reader_must_beware_of_is_noted(found):
    told = notes(found)
    assert "best rounds were chosen on test data, so their scores are too rosy" in told
    # The builder gives every run the same sum.
    assert "both sides end with the same models, bit for bit" in told
    fewer = replace(found, b=replace(found.b, runs=found.b.runs[1:]), classes=(), clients=())
    assert "seeds in common: 1; differences are over those" in notes(fewer)
    assert sum("have not the same" in note for note in notes(fewer)) == 2


def test_other_data_are_noted(found, tmp_path):
    build(tmp_path / "other" / "0", Sketch(data="digit-mosaic", rounds=2))
    other = contrast(found.a, read_side(str(tmp_path / "other")))
    warning = "the sides are scored on other data, so their scores say little"
    assert warning in notes(other)
    assert warning not in notes(found)


def test_all_of_it_is_plain_json_without_nan(found):
    plain = as_json(with_gap(found, math.nan, math.nan, math.nan, 0, 0, 0))
    text = json.dumps(plain, allow_nan=False)
    assert json.loads(text)["scores"][0]["gap"]["mean"] is None
    assert plain["tally"]["all"]["won"] + plain["tally"]["all"]["lost"] == 10
    assert plain["a"]["seeds"] == [0, 1]


def test_the_examples_give_what_they_show():
    done = doctest.testmod(compare_words)
    assert (done.failed, done.attempted) == (0, 2)
