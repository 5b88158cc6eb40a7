import json
import math

import pytest

from fedbb.errors import RecipeError
from fedbb.report.compare import contrast
from fedbb.report.sides import read_side
from helpers.run_builder import Sketch, build, write


def side(root, method, seeds, **changes):
    for seed in seeds:
        build(root / f"{seed}", Sketch(method=method, seed=seed, rounds=2, **changes))
    return read_side(str(root))


def set_scores(side_of, metric, values):
    """Rewrite the final macro score of each run, and read the side anew."""
    for run, value in zip(side_of.runs, values, strict=True):
        summary = json.loads((run.path / "summary.json").read_text())
        summary["final"]["scores"]["test"]["macro"][metric] = value
        write(run.path / "summary.json", summary)
    return read_side(side_of.given)


def set_classes(side_of, vectors):
    for run, vector in zip(side_of.runs, vectors, strict=True):
        summary = json.loads((run.path / "summary.json").read_text())
        summary["final"]["scores"]["test"]["per_class"]["recall"] = vector
        write(run.path / "summary.json", summary)
    return read_side(side_of.given)


def final_of(found, metric):
    (line,) = [line for line in found.scores if (line.metric, line.which) == (metric, "final")]
    return line


def test_the_paired_difference_and_its_interval_are_as_worked_by_hand(tmp_path):
    a = set_scores(side(tmp_path / "a", "fedavg", [0, 1, 2]), "f1", [0.5, 0.6, 0.7])
    b = set_scores(side(tmp_path / "b", "fedbb", [0, 1, 2]), "f1", [0.51, 0.62, 0.73])
    line = final_of(contrast(a, b, ["f1"]), "f1")
    # Gaps 0.01, 0.02, 0.03: mean 0.02, sd 0.01; t(0.975, 2) = 4.30265; reach 4.30265·0.01/√3.
    reach = 4.302653 * 0.01 / math.sqrt(3)
    assert line.gap.mean == pytest.approx(0.02)
    assert line.gap.interval.low == pytest.approx(0.02 - reach)
    assert line.gap.interval.high == pytest.approx(0.02 + reach)
    assert (line.gap.pairs, line.gap.ahead, line.gap.behind) == (3, 3, 0)
    assert (line.a.mean, line.a.deviation) == pytest.approx((0.6, 0.1))


def test_exchanging_the_sides_changes_signs_only(tmp_path):
    a, b = side(tmp_path / "a", "fedavg", [0, 1, 2]), side(tmp_path / "b", "fedbb", [0, 1, 2])
    there, back = contrast(a, b), contrast(b, a)
    for one, other in zip(there.scores, back.scores, strict=True):
        assert one.gap.mean == pytest.approx(-other.gap.mean)
        assert one.gap.interval.low == pytest.approx(-other.gap.interval.high)
        assert (one.a, one.gap.ahead) == (other.b, other.gap.behind)
    gains = {line.name: line.gap for line in there.classes}
    assert gains == pytest.approx({line.name: -line.gap for line in back.classes})
    assert [(line.key, line.a, line.b) for line in there.settings] == [
        ("method.name", "fedavg", "fedbb")
    ]


def test_only_seeds_of_both_sides_are_paired(tmp_path):
    a = set_scores(side(tmp_path / "a", "fedavg", [0, 1, 2]), "f1", [0.5, 0.6, 0.1])
    b = set_scores(side(tmp_path / "b", "fedbb", [7, 0, 1]), "f1", [0.6, 0.7, 0.9])
    found = contrast(a, b, ["f1"])
    line = final_of(found, "f1")
    # Side B is read in the order of its seeds 0, 1, 7.
    assert found.shared == (0, 1)
    assert line.gap.mean == pytest.approx((0.6 - 0.5 + 0.7 - 0.6) / 2)
    assert (line.a.number, line.b.number, line.gap.pairs) == (3, 3, 2)


def test_without_a_common_seed_the_means_are_compared_without_an_interval(tmp_path):
    a = set_scores(side(tmp_path / "a", "fedavg", [0]), "f1", [0.5])
    b = set_scores(side(tmp_path / "b", "fedbb", [1, 2]), "f1", [0.6, 0.8])
    gap = final_of(contrast(a, b, ["f1"]), "f1").gap
    assert gap.mean == pytest.approx(0.2)
    assert math.isnan(gap.interval.low)
    assert gap.pairs == 0


def test_classes_go_from_the_greatest_gain_to_the_greatest_loss_undefined_last(tmp_path):
    names = ("up", "down", "same", "unknown")
    a = side(tmp_path / "a", "fedavg", [0, 1], classes=names)
    b = side(tmp_path / "b", "fedbb", [0, 1], classes=names)
    a = set_classes(a, [[0.1, 0.9, 0.5, 0.5], [0.3, 0.9, 0.5, 0.5]])
    b = set_classes(b, [[0.6, 0.4, 0.5, None], [0.6, 0.6, 0.5, None]])
    lines = contrast(a, b).classes
    assert [line.name for line in lines] == ["up", "same", "down", "unknown"]
    assert [line.gap for line in lines[:3]] == pytest.approx([0.4, 0.0, -0.4])
    assert math.isnan(lines[3].gap)


def test_the_metric_chosen_judges_the_classes_too_if_they_have_it(tmp_path):
    a, b = side(tmp_path / "a", "fedavg", [0]), side(tmp_path / "b", "fedbb", [0])
    assert contrast(a, b).class_metric == "recall"
    assert contrast(a, b, ["average_precision", "f1"]).class_metric == "average_precision"
    assert {line.metric for line in contrast(a, b, ["f1"]).scores} == {"f1"}


def test_several_labels_are_judged_by_auroc(tmp_path):
    a = side(tmp_path / "a", "fedavg", [0], task="multilabel")
    found = contrast(a, side(tmp_path / "b", "fedbb", [0], task="multilabel"))
    assert (found.scores[0].metric, found.class_metric) == ("auroc", "auroc")


def test_an_unknown_metric_is_refused(tmp_path):
    a = side(tmp_path / "a", "fedavg", [0])
    with pytest.raises(RecipeError, match=r"metric 'f2' is unknown; did you mean f1\?"):
        contrast(a, a, ["f2"])


def test_other_classes_and_other_clients_are_not_compared(tmp_path):
    a = side(tmp_path / "a", "fedavg", [0])
    b = side(tmp_path / "b", "fedavg", [0], classes=("x", "y"), clients=3)
    found = contrast(a, b)
    assert (found.classes, found.clients) == ((), ())
    assert len(found.scores) == 6


def test_weights_are_of_the_first_common_seed(tmp_path):
    a, b = side(tmp_path / "a", "fedavg", [0, 1]), side(tmp_path / "b", "fedbb", [1, 2])
    found = contrast(a, b)
    assert found.seed_of_clients == 1
    assert [line.a for line in found.clients] == [
        share.weight for share in a.of_seed(1).federation.clients
    ]
    assert sum(line.b for line in found.clients) == pytest.approx(1)
