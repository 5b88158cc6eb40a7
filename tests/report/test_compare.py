"""Two groups of runs: differences, classes, weights, verdict and notes."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from fedbb.analysis.measures import effective_clients
from fedbb.errors import RecipeError
from fedbb.report.compare import (
    ClassScore,
    GainCounts,
    as_json,
    compare_groups,
    count_gains,
    notes,
    verdict,
)
from fedbb.report.groups import read_group
from fedbb.report.statistics import paired_difference
from helpers.run_builder import Sketch, build, write


def group(root, method, seeds, **changes):
    for seed in seeds:
        build(root / f"{seed}", Sketch(method=method, seed=seed, rounds=2, **changes))
    return read_group(str(root))


def set_scores(group_of, metric, values):
    """Rewrite the final macro score of each run, and read the side anew."""
    for run, value in zip(group_of.runs, values, strict=True):
        summary = json.loads((run.path / "summary.json").read_text())
        summary["final"]["scores"]["test"]["macro"][metric] = value
        write(run.path / "summary.json", summary)
    return read_group(group_of.label)


def set_classes(group_of, vectors):
    for run, vector in zip(group_of.runs, vectors, strict=True):
        summary = json.loads((run.path / "summary.json").read_text())
        summary["final"]["scores"]["test"]["per_class"]["recall"] = vector
        write(run.path / "summary.json", summary)
    return read_group(group_of.label)


def final_of(found, metric):
    (line,) = [line for line in found.scores if (line.metric, line.which) == (metric, "final")]
    return line


def test_the_paired_difference_and_its_interval_are_as_worked_by_hand(tmp_path):
    a = set_scores(group(tmp_path / "a", "fedavg", [0, 1, 2]), "f1", [0.5, 0.6, 0.7])
    b = set_scores(group(tmp_path / "b", "fedbb", [0, 1, 2]), "f1", [0.51, 0.62, 0.73])
    line = final_of(compare_groups(a, b, ["f1"]), "f1")
    # Gaps 0.01, 0.02, 0.03: mean 0.02, sd 0.01; t(0.975, 2) = 4.30265; reach 4.30265·0.01/√3.
    reach = 4.302653 * 0.01 / math.sqrt(3)
    assert line.gap == pytest.approx(0.02)
    assert line.paired.interval.low == pytest.approx(0.02 - reach)
    assert line.paired.interval.high == pytest.approx(0.02 + reach)
    assert (line.paired.seeds, line.paired.ahead, line.paired.behind) == ((0, 1, 2), 3, 0)
    assert (line.a.mean, line.a.deviation) == pytest.approx((0.6, 0.1))


def test_exchanging_the_sides_changes_signs_only(tmp_path):
    a, b = group(tmp_path / "a", "fedavg", [0, 1, 2]), group(tmp_path / "b", "fedbb", [0, 1, 2])
    there, back = compare_groups(a, b), compare_groups(b, a)
    for one, other in zip(there.scores, back.scores, strict=True):
        assert one.gap == pytest.approx(-other.gap)
        assert one.paired.interval.low == pytest.approx(-other.paired.interval.high)
        assert (one.a, one.paired.ahead) == (other.b, other.paired.behind)
    gains = {line.name: line.gap for line in there.classes}
    assert gains == pytest.approx({line.name: -line.gap for line in back.classes})
    assert [(line.key, line.a, line.b) for line in there.settings] == [
        ("method.name", "fedavg", "fedbb")
    ]


def test_only_seeds_of_both_sides_are_paired(tmp_path):
    a = set_scores(group(tmp_path / "a", "fedavg", [0, 1, 2]), "f1", [0.5, 0.6, 0.1])
    b = set_scores(group(tmp_path / "b", "fedbb", [7, 0, 1]), "f1", [0.6, 0.7, 0.9])
    found = compare_groups(a, b, ["f1"])
    line = final_of(found, "f1")
    # Side B is read in the order of its seeds 0, 1, 7.
    assert found.shared == (0, 1)
    assert line.gap == pytest.approx((0.6 - 0.5 + 0.7 - 0.6) / 2)
    assert (line.a.number, line.b.number, line.paired.seeds) == (3, 3, (0, 1))


def test_without_a_common_seed_the_means_are_compared_without_an_interval(tmp_path):
    a = set_scores(group(tmp_path / "a", "fedavg", [0]), "f1", [0.5])
    b = set_scores(group(tmp_path / "b", "fedbb", [1, 2]), "f1", [0.6, 0.8])
    line = final_of(compare_groups(a, b, ["f1"]), "f1")
    assert line.gap == pytest.approx(0.2)
    assert math.isnan(line.paired.interval.low)
    assert line.paired.seeds == ()


def test_classes_go_from_the_greatest_gain_to_the_greatest_loss_undefined_last(tmp_path):
    names = ("up", "down", "same", "unknown")
    a = group(tmp_path / "a", "fedavg", [0, 1], classes=names)
    b = group(tmp_path / "b", "fedbb", [0, 1], classes=names)
    a = set_classes(a, [[0.1, 0.9, 0.5, 0.5], [0.3, 0.9, 0.5, 0.5]])
    b = set_classes(b, [[0.6, 0.4, 0.5, None], [0.6, 0.6, 0.5, None]])
    lines = compare_groups(a, b).classes
    assert [line.name for line in lines] == ["up", "same", "down", "unknown"]
    assert [line.gap for line in lines[:3]] == pytest.approx([0.4, 0.0, -0.4])
    assert math.isnan(lines[3].gap)


def test_the_metric_chosen_judges_the_classes_too_if_they_have_it(tmp_path):
    a, b = group(tmp_path / "a", "fedavg", [0]), group(tmp_path / "b", "fedbb", [0])
    assert compare_groups(a, b).class_metric == "recall"
    assert compare_groups(a, b, ["average_precision", "f1"]).class_metric == "average_precision"
    assert {line.metric for line in compare_groups(a, b, ["f1"]).scores} == {"f1"}


def test_several_labels_are_judged_by_auroc(tmp_path):
    a = group(tmp_path / "a", "fedavg", [0], task="multilabel")
    found = compare_groups(a, group(tmp_path / "b", "fedbb", [0], task="multilabel"))
    assert (found.scores[0].metric, found.class_metric) == ("auroc", "auroc")


def test_an_unknown_metric_is_refused(tmp_path):
    a = group(tmp_path / "a", "fedavg", [0])
    with pytest.raises(RecipeError, match=r"metric 'f2' is unknown; did you mean f1\?"):
        compare_groups(a, a, ["f2"])


def test_other_classes_and_other_clients_are_not_compared(tmp_path):
    a = group(tmp_path / "a", "fedavg", [0])
    b = group(tmp_path / "b", "fedavg", [0], classes=("x", "y"), clients=3)
    found = compare_groups(a, b)
    assert (found.classes, found.clients) == ((), ())
    assert len(found.scores) == 6


def test_weights_are_of_the_first_common_seed(tmp_path):
    a, b = group(tmp_path / "a", "fedavg", [0, 1]), group(tmp_path / "b", "fedbb", [1, 2])
    found = compare_groups(a, b)
    assert found.seed_of_clients == 1
    assert [line.a for line in found.clients] == [
        share.weight for share in a.of_seed(1).federation.known
    ]
    assert sum(line.b for line in found.clients) == pytest.approx(1)


@pytest.fixture
def found(tmp_path):
    for method in ("fedavg", "fedbb"):
        for seed in range(2):
            build(tmp_path / method / str(seed), Sketch(method=method, seed=seed, rounds=2))
    return compare_groups(read_group(str(tmp_path / "fedavg")), read_group(str(tmp_path / "fedbb")))


def with_gaps(found, gaps):
    """Replace the first score's difference by one with these gaps."""
    paired = paired_difference(dict(enumerate(gaps)), dict.fromkeys(range(len(gaps)), 0.0))
    return replace(found, scores=(replace(found.scores[0], paired=paired), *found.scores[1:]))


def class_score(cases, gap):
    return ClassScore("name", cases, 0.5, 0.5 + gap, gap)


@pytest.mark.parametrize(
    ("gaps", "sentence"),
    [
        ([0.05, 0.05, 0.05], "B is ahead of A by 5.0 points of balanced accuracy (95 % interval"),
        ([-0.05, -0.05, -0.05], "B is behind A by 5.0 points"),
        ([0.01, 0.02, 0.03], "B shows no clear difference from A (+2.0 points"),
        ([0.05], "on one seed, which allows no verdict."),
        ([], "there is no common seed, which allows no verdict."),
        ([0.0, 0.0], "B scores the same as A on all 2 seeds."),
    ],
)
def test_the_verdict_follows_the_interval(found, gaps, sentence):
    assert sentence in verdict(with_gaps(found, gaps))


def test_a_score_that_nobody_has_is_not_judged(found):
    undefined = replace(found.scores[0].a, mean=math.nan)
    score = replace(with_gaps(found, []).scores[0], a=undefined)
    text = verdict(replace(found, scores=(score, *found.scores[1:])))
    assert text == "No seed has a balanced accuracy of both A and B."


def test_head_and_tail_are_thirds_of_the_classes_by_cases(found):
    counts = found.a.runs[0].federation.class_counts
    ordered = sorted(range(10), key=lambda index: -counts[index])
    names = found.a.runs[0].federation.classes
    for part, chosen in (("head", ordered[:3]), ("tail", ordered[-3:])):
        assert {line.name for line in found.classes_of(part)} == {names[i] for i in chosen}


def test_the_tally_leaves_out_what_is_undefined():
    lines = [class_score(1, gap) for gap in (0.1, 0.2, 0.0, -0.1, math.nan)]
    assert count_gains(lines) == GainCounts(won=2, lost=1, alike=1)


def test_as_many_equal_weights_are_as_many_clients():
    assert effective_clients(np.full(4, 0.25)) == pytest.approx(4)
    assert effective_clients(np.array([1.0, 0.0])) == 1


def test_what_a_reader_must_beware_of_is_noted(found):
    lines = notes(found)
    assert "best rounds were chosen on test data, so their scores are optimistic" in lines
    # The builder gives every run the same sum.
    assert "both groups end with bit-identical models" in lines
    fewer = replace(found, b=replace(found.b, runs=found.b.runs[1:]), classes=(), clients=())
    assert "seeds in common: 1; differences are over those" in notes(fewer)
    assert sum("have different" in note for note in notes(fewer)) == 2


def test_other_data_are_noted(found, tmp_path):
    build(tmp_path / "other" / "0", Sketch(data="digit-mosaic", rounds=2))
    other = compare_groups(found.a, read_group(str(tmp_path / "other")))
    warning = "the groups are scored on different data, so their scores are hardly comparable"
    assert warning in notes(other)
    assert warning not in notes(found)


def test_all_of_it_is_plain_json_without_nan(found):
    plain = as_json(with_gaps(found, [0.1]))
    gap = json.loads(json.dumps(plain, allow_nan=False))["scores"][0]["gap"]
    assert gap["mean"] == 0.1
    assert gap["interval"] == {"low": None, "high": None}
    assert (gap["pairs"], gap["ahead"], gap["behind"], gap["verdict"]) == (1, 1, 0, "one seed")
    assert plain["tally"]["all"]["won"] + plain["tally"]["all"]["lost"] == 10
    assert plain["a"]["seeds"] == [0, 1]
