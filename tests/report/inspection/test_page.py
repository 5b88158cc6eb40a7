import json
import re

import numpy as np
import pytest

from fedbb.analysis.inspect import inspect
from fedbb.analysis.measures import Settings, measure_cases, measure_clients
from fedbb.partition.registry import Rule
from fedbb.report.inspection.page import page_data, write_inspection
from helpers.browser import look, needs_chromium

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


FEDERATIONS = {"multilabel": multilabel, "multiclass": multiclass}


@pytest.fixture(scope="module", params=list(FEDERATIONS))
def page(request, tmp_path_factory):
    found = FEDERATIONS[request.param]()
    path = tmp_path_factory.mktemp("page") / "index.html"
    return found, write_inspection(found, "[method]\nname = 'x'\n", path)


MOVES = {"beta": 2.5, "tau": 0.5, "gamma": 0.25}


@pytest.fixture(scope="module")
def seen(page):
    return look(page[1], MOVES)


@needs_chromium
def test_the_page_runs_without_a_complaint(seen):
    assert seen["complaints"] == []


@needs_chromium
def test_the_tables_show_the_figures_of_the_record(page, seen):
    found = page[0]
    rows = re.findall(r"<tr.*?</tr>", seen["elements"], re.S)
    cells = [tuple(re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row)) for row in rows]
    for place, alpha in enumerate(found.cases.alpha_positive):
        part = found.cases.classed[:, place].sum()
        expected = (f"{alpha:.4f}", f"{100 * part:.2f} %")
        assert any(row[3:4] + row[5:6] == expected for row in cells), expected
    weights = found.clients.weights["share-std"]
    for place, samples in enumerate(found.clients.samples):
        expected = (f"{samples:,}", f"{100 * weights[place]:.2f} %")
        assert any(row[1:2] + row[-1:] == expected for row in cells), expected


@needs_chromium
def test_figures_warnings_and_advice_are_drawn(page, seen):
    found, elements = page[0], seen["elements"]
    assert elements.count("<figure") >= 5
    assert elements.count('<input type="range"') == 3
    assert 'id="outcome"' in elements
    spread = found.cases.alpha_positive[found.cases.positive > 0]
    assert f"α⁺ from {spread.min():.4f} to {spread.max():.4f}" in elements
    assert f"count as {found.clients.effective['share-std']:.2f} equal ones" in elements
    for reason in found.advice.reasons:
        assert reason in elements.replace("&gt;", ">")


@needs_chromium
@pytest.mark.parametrize("width", ["phone", "desk"])
def test_nothing_is_wider_than_the_window(seen, width):
    assert seen[width] == {"page": 0, "wide": []}


@needs_chromium
def test_sliders_lead_to_what_python_makes_of_their_settings(page, seen):
    found, tally = page[0], page[0].statistics
    positive, negative = tally.positive.sum(axis=0), tally.negative.sum(axis=0)
    settings = Settings(beta=1 - 10**-2.5, tau=10**0.5, mu=1.0, gamma=0.25)
    alpha = measure_cases(positive, negative, tally.task, settings).alpha_positive[positive > 0]
    assert f"α⁺ from {alpha.min():.4f} to {alpha.max():.4f}" in seen["moved"]
    weights = measure_clients(tally, settings).weights[found.settings.reading]
    assert f"count as {1 / (weights @ weights):.2f} equal ones" in seen["moved"]
    assert f"the heaviest weighs {100 * weights.max():.1f} %" in seen["moved"]


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
