"""What is found, as Markdown and as JSON."""

import json

from fedbb.report.collect import read_runs
from fedbb.report.findings import NO_RIVAL, as_json, as_markdown, work_out
from fedbb.report.groups import group
from helpers.run_builder import LEVELS, Sketch, build_all


def findings(root, *sketches):
    return [work_out(part) for part in group(read_runs(build_all(root, sketches)))]


def test_the_metric_of_the_runs_comes_first_and_decides_the_verdict(tmp_path):
    sketches = [Sketch(method, seed, level=LEVELS[method]) for method in LEVELS for seed in (0, 1)]
    (part,) = findings(tmp_path, *sketches)
    assert list(dict.fromkeys(row.metric for row in part.rows)) == [
        "balanced_accuracy",
        "accuracy",
        "f1",
    ]
    assert part.sentences[0].startswith("FedBB is ahead of FedAvg by")
    assert all("balanced accuracy" in sentence for sentence in part.sentences)


def test_a_method_alone_is_not_judged(tmp_path):
    (part,) = findings(tmp_path, Sketch("fedbb"))
    assert part.sentences == (NO_RIVAL,)
    assert "Differences" not in as_markdown("Title", [part])


def test_markdown_has_all_tables_of_every_data_set(tmp_path):
    mosaic = [Sketch(method, data="digit-mosaic", task="multilabel") for method in LEVELS]
    parts = findings(tmp_path, *(Sketch(method) for method in LEVELS), *mosaic)
    text = as_markdown("A *title*", parts, ["lost_run"])
    assert text.startswith("# A \\*title\\*\n\nScores are on test data")
    assert text.count("\n## ") == 2
    assert text.count("\n| method |") == 4
    assert text.count("\n| difference |") == 2
    assert "| method | AUROC | average precision | balanced accuracy | seeds |" in text
    assert text.endswith("Left out because unfinished: lost\\_run.\n")


def test_json_holds_the_figures_and_nothing_that_is_not_json(tmp_path):
    (part,) = findings(tmp_path, Sketch("fedavg", level=0.5), Sketch("fedbb", level=0.6))
    plain = json.loads(json.dumps(as_json([part], ["x"]), allow_nan=False))
    (found,) = plain["comparisons"]
    assert plain["unfinished"] == ["x"]
    assert found["rows"][0]["final"]["deviation"] is None  # one seed
    (gap,) = (item for item in found["differences"] if item["metric"] == "f1")
    assert gap["outcome"] == "one seed"
    assert [run["method"] for run in found["runs"]] == ["fedavg", "fedbb"]
    assert found["runs"][0]["sha256"] == "0" * 64
