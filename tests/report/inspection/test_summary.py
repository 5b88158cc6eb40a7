import io

import numpy as np
import pytest
from rich.console import Console

from fedbb.analysis.inspect import inspect
from fedbb.partition.registry import Rule
from fedbb.report.inspection.summary import print_summary


def shown(found, width=80):
    target = io.StringIO()
    print_summary(found, Console(file=target, width=width))
    return target.getvalue()


def many(task):
    rng = np.random.default_rng(2)
    if task == "multiclass":
        labels = rng.choice(200, 20_000, p=np.arange(1, 201) / 20_100)
        return inspect(labels, Rule("label-skew", 100, 0.1, min_samples=1))
    marks = (rng.random((5000, 40)) < np.geomspace(0.5, 0.001, 40)).astype(int)
    names = [f"a finding of a long name, {number}" for number in range(40)]
    owners = np.minimum(rng.geometric(0.2, 5000), 40)
    return inspect(marks, owners, classes=names, patients=np.arange(5000) % 700)


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_the_summary_of_many_classes_and_clients_fits_one_screen(task):
    lines = shown(many(task)).splitlines()
    assert len(lines) <= 42
    assert max(map(len, lines)) <= 80
    assert not any("…" in line.split("  ")[-1] and "more" not in line for line in lines[3:6])


def test_the_summary_tells_each_level_the_warnings_and_the_advice():
    text = " ".join(shown(many("multilabel")).split())
    for words in ("label sets seen", "Gini", "CBR", "share-std", "patients are on", "advice beta"):
        assert words in text
    assert "32 more" in text


def test_one_client_is_not_compared():
    assert "FedAvg" not in shown(inspect([0, 0, 1]))


def test_names_are_shown_as_they_are():
    assert "[red]x[/red]" in shown(inspect([0, 0, 1], classes=["[red]x[/red]", "y"]))
