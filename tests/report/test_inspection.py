"""The screen and the files of an inspection."""

import csv
import io
import json

import numpy as np
import pytest
from rich.console import Console

from fedbb.analysis.inspect import inspect
from fedbb.analysis.measures import Settings, measure_clients
from fedbb.errors import RunError
from fedbb.losses.pnb import PNB, weigh
from fedbb.partition.registry import Rule
from fedbb.records import LabelCounts, Task
from fedbb.report.inspection import (
    page_data,
    print_summary,
    write_inspection,
    write_tables,
)


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_files_hold_the_figures_to_the_last_digit(tmp_path):
    found = inspect(
        [0, 0, 1, 1, 2, 0], ["x", "x", "y,z", "x", "y,z", "x"], classes=["a", 'b"', "c"]
    )
    names = [path.name for path in write_tables(found, tmp_path / "new")]
    assert names == ["classes.csv", "clients.csv", "counts.csv"]
    classes, clients, counts = (read(tmp_path / "new" / name) for name in names)
    assert [row["class"] for row in classes] == ["a", 'b"', "c"]
    for column, values in (
        ("alpha_positive", found.cases.alpha_positive),
        ("raw_positive", found.cases.raw[0]),
        ("classed_positive", found.cases.classed[0]),
        ("share", found.classes.shares),
    ):
        assert np.array_equal([float(row[column]) for row in classes], values)
    assert [row["client"] for row in clients] == ["x", "y,z"]
    for reading, values in found.clients.weights.items():
        assert np.array_equal([float(row[f"weight_{reading}"]) for row in clients], values)
    assert [[int(row[name]) for name in ("a", 'b"', "c")] for row in counts] == [
        [3, 1, 0],
        [0, 1, 1],
    ]


def test_a_folder_that_cannot_be_is_an_error_of_ours(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        write_tables(inspect([0, 1]), tmp_path / "file" / "folder")


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


HOSTILE = '</script><script>alert(1)</script><!-- " \u2028 ' + "long" * 30


def multilabel():
    rng = np.random.default_rng(1)
    marks = (rng.random((900, 6)) < [0.5, 0.3, 0.2, 0.1, 0.05, 0.01]).astype(int)
    sites = rng.choice(["north", "south", HOSTILE], 900, p=[0.7, 0.28, 0.02])
    names = ["Mass", "Effusion, pleural", HOSTILE, "Edema", "Hernia", "x"]
    return inspect(marks, sites, classes=names, settings=Settings(beta=0.999))


def multiclass():
    labels = np.repeat(np.arange(10), np.arange(1000, 0, -100))
    return inspect(labels, Rule("label-skew", 12, 0.2))


def with_options():
    labels = np.repeat(np.arange(4), [900, 90, 30, 6])
    clients = np.concatenate([np.arange(1020) % 5, np.full(6, 5)])
    options = {"mu": "unit", "class_factor": "effective", "alpha_min": 0.05, "margin": 0.5}
    return inspect(labels, clients, settings=Settings(beta=0.99, gamma=0.5, **options))


FEDERATIONS = {"multilabel": multilabel, "multiclass": multiclass, "options": with_options}


@pytest.fixture(scope="module", params=list(FEDERATIONS))
def page(request, tmp_path_factory):
    found = FEDERATIONS[request.param]()
    path = tmp_path_factory.mktemp("page") / "index.html"
    return found, write_inspection(found, "[method]\nname = 'x'\n", path)


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_and_nothing_complains(visit, page, width):
    with visit(page[1], width) as seen:
        seen.see_all()
        assert seen.cut() == []
        assert seen.overlaps() == []
        multilabel = page[0].statistics.task is Task.MULTILABEL
        assert seen.page.locator(".plot svg").count() == (8 if multilabel else 6)


def test_the_tables_show_the_figures_of_the_record(visit, page):
    found = page[0]
    with visit(page[1]) as seen:
        classes = {row[0]: row for row in seen.rows("class-table")}
        clients = {row[0]: row for row in seen.rows("client-table")}
        heads = {name: seen.head(name) for name in ("class-table", "client-table")}
    for place, name in enumerate(found.statistics.classes):
        cells = dict(zip(heads["class-table"], classes[name.replace("\xa0", " ")], strict=True))
        assert cells["α⁺"] == f"{found.cases.alpha_positive[place]:.4f}"
        assert cells["share with PNB"] == f"{100 * found.cases.classed[:, place].sum():.2f} %"
    for place, name in enumerate(found.clients.names):
        cells = dict(zip(heads["client-table"], clients[name], strict=True))
        assert cells["samples"] == f"{found.clients.samples[place]:,}"
        assert cells["CBR"] == f"{100 * found.clients.weights['share-std'][place]:.2f} %"
        assert cells["mean PNB weight"] == f"{found.clients.loss_weight[place]:.4f}"


def test_warnings_and_advice_are_shown(visit, page):
    found = page[0]
    with visit(page[1]) as seen:
        summary = seen.page.locator("#summary").text_content()
    for text in (*found.advice.reasons, *(warning.text for warning in found.warnings)):
        assert text in summary


def outcome(tally, settings, loss):
    """Return the numbers that the page must name for these settings."""
    positive, negative = tally.positive.sum(axis=0), tally.negative.sum(axis=0)
    found = weigh(loss, LabelCounts(positive, negative, 0), tally.task)
    alpha = found.alpha_positive[positive > 0]
    shares = found.positive * positive + found.negative * negative
    weights = measure_clients(tally, settings).weights[settings.reading]
    return [
        f"α⁺ from {alpha.min():.4f} to {alpha.max():.4f}",
        f"mean weight of a case {found.mean:.4f}",
        f"the largest class has {100 * (shares / shares.sum()).max():.1f} %",
        f"equivalent to {1 / (weights @ weights):.2f} equal clients",
        f"the largest weight is {100 * weights.max():.1f} %",
    ]


def test_controls_lead_to_what_python_makes_of_their_settings(visit, page):
    found, tally = page[0], page[0].statistics
    given, advice = found.settings, found.advice
    with visit(page[1]) as seen:
        words = seen.page.locator("#outcome")
        first = outcome(tally, given, given.loss)
        assert [text for text in first if text not in words.inner_text()] == []
        for key, value in {"beta": 2.5, "tau": 0.5, "alpha_min": 0.1, "gamma": 0.25}.items():
            seen.page.locator(f"#slide-{key}").fill(str(value))
        seen.page.select_option("#choose-class_factor", index=1)
        seen.page.select_option("#choose-mu", label="unit: mean weight 1")
        settings = Settings(beta=1 - 10**-2.5, tau=10**0.5, gamma=0.25)
        loss = PNB(settings.beta, settings.tau, "unit", "effective", 0.1)
        moved = outcome(tally, settings, loss)
        assert [text for text in moved if text not in words.inner_text()] == []
        seen.page.click("#as-advised")
        settings = Settings(advice.beta, advice.tau, advice.mu, advice.gamma, advice.reading)
        loss = PNB(advice.beta, advice.tau, advice.mu, alpha_min=advice.alpha_min)
        advised = outcome(tally, settings, loss)
        assert [text for text in advised if text not in words.inner_text()] == []
        seen.page.click("#as-given")
        assert [text for text in first if text not in words.inner_text()] == []


def test_no_sample_is_in_the_page_only_counts():
    marks = np.eye(3, dtype=int)[np.arange(60) % 3]
    names = [f"row-{number}-secret" for number in range(60)]
    found = inspect(marks, np.arange(60) % 2, patients=names)
    text = json.dumps(page_data(found, ""))
    assert "secret" not in text
    assert len(text) < 6000


def test_hostile_names_are_only_text(tmp_path):
    page = write_inspection(multilabel(), "", tmp_path / "deep" / "index.html").read_text("utf-8")
    assert "alert(1)</script>" not in page
    assert page.count("</script>") == 2


def test_many_classes_and_clients_are_cut_to_the_largest_and_smallest():
    labels = np.repeat(np.arange(300), 5 + np.arange(300))
    found = inspect(labels, np.arange(len(labels)) % 200)
    data = page_data(found, "")
    assert len(data["classes"]) == 60
    assert data["classes"][0] == "299"
    assert data["classes"][-1] == "0"
    assert data["left_out"] == [240, 140]
    assert len(data["all_samples"]) == 200
    assert len(data["total"][0]) == 300
