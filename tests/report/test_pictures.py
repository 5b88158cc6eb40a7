"""The figures of a comparison, each with its caption."""

from fedbb.report.groups import group
from fedbb.report.pictures import draw
from fedbb.report.results import read_runs
from helpers.drawn_figures import compared
from helpers.run_builder import Sketch, build_all


def test_captions_name_the_metric_of_the_task(tmp_path):
    (tmp_path / "figures").mkdir()
    comparison = compared(tmp_path / "runs", task="multilabel", data="mosaic")
    curves, classes, *_ = draw(comparison, tmp_path / "figures", "x")
    assert curves.caption.startswith("AUROC after each round")
    assert classes.caption.startswith("Average precision class by class")
    assert curves.svg.startswith("<svg")


def test_without_cbr_there_is_no_figure_of_weights(tmp_path):
    (comparison,) = group(read_runs(build_all(tmp_path / "runs", [Sketch("fedavg")])))
    draw(comparison, tmp_path, "x")
    names = sorted(path.name for path in tmp_path.glob("*.png"))
    assert names == ["x-classes.png", "x-curves.png", "x-partition.png"]
