import json

import pytest

from fedbb.cli.methods import GROUPS
from fedbb.methods import HEADS, METHODS
from helpers.commands import fedbb

HEADS_GROUP = "Balanced classifiers, added to a method as in fedavg+lda-head"


def test_every_method_is_listed_with_its_slots(monkeypatch):
    rows = json.loads(fedbb("methods", "--json", monkeypatch=monkeypatch).out)
    assert [row["name"] for row in rows] == list(METHODS)
    by_name = {row["name"]: row for row in rows}
    assert by_name["fedbb"]["loss"] == "PNB"
    assert by_name["fedbb"]["weighting"] == "ClientBalanced"
    assert by_name["fedbb"]["options"]["beta"] == 0.9999
    assert by_name["scaffold"]["server"] == ["ServerControl"]
    assert by_name["scaffold"]["server_sees"] == "sums over clients"
    assert by_name["climb"]["server_sees"] == "figures of single clients"
    assert all(row["about"] for row in rows)
    assert {row["group"] for row in rows} == set(GROUPS) - {HEADS_GROUP}


def test_the_list_has_one_line_for_each_method(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = fedbb("methods", monkeypatch=monkeypatch).out.splitlines()
    named = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(named) == sorted([*METHODS, *(f"+{head}" for head in HEADS)])
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert [line for line in lines if line in GROUPS] == list(GROUPS)


@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("pfedla", "a model of every client held by the server"),
        ("fedfusion", "all models of a round held by the server"),
        (
            "fedavg+lda-head",
            "the merged model sent to the clients once more, the served classifier",
        ),
        ("creff", "statistics sent beside the model, the served classifier made by the server"),
    ],
)
def test_the_cost_of_a_method_names_what_the_server_holds_and_sends(monkeypatch, name, cost):
    row = json.loads(fedbb("methods", name, "--json", monkeypatch=monkeypatch).out)
    assert cost in row["cost"]
    assert row["cost"].count("by the server") == 1


def test_one_method_is_shown_in_full(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out = fedbb("methods", "scaffold", monkeypatch=monkeypatch).out
    assert "penalties ControlVariate · statistics ControlChange · server ServerControl" in out
    assert "2 more models held, a state kept by every client, statistics sent" in out
    assert "options lr=1.0" in out
    row = json.loads(fedbb("methods", "scaffold", "--json", monkeypatch=monkeypatch).out)
    assert row["name"] == "scaffold"


def test_a_combination_is_shown_with_the_options_of_its_parts(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out = fedbb("methods", "fedprox+fedrs+means-head", monkeypatch=monkeypatch).out
    assert "loss RestrictedSoftmax" in out
    assert "options of fedprox mu=0.001" in out
    assert "options of means-head prior=equal" in out
    refused = fedbb("methods", "lda-head", monkeypatch=monkeypatch)
    assert "is added to a method, as in fedavg+lda-head" in refused.err


@pytest.mark.parametrize("name", ["scafold", "moon+fedb"])
def test_an_unknown_name_is_refused(monkeypatch, name):
    done = fedbb("methods", name, monkeypatch=monkeypatch)
    assert done.code == 2
    assert f"'{name}' is unknown" in done.err
