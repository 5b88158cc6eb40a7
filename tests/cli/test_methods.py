import json

from fedbb.methods import METHODS
from helpers.commands import fedbb


def test_every_method_is_listed_with_its_slots(monkeypatch):
    rows = json.loads(fedbb("methods", "--json", monkeypatch=monkeypatch).out)
    assert [row["name"] for row in rows] == list(METHODS)
    by_name = {row["name"]: row for row in rows}
    assert by_name["fedbb"]["loss"] == "PNB"
    assert by_name["fedbb"]["weighting"] == "ClientBalanced"
    assert by_name["fedbb"]["options"]["beta"] == 0.9999
    assert all(row["about"] for row in rows)


def test_the_table_names_every_method(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out = fedbb("methods", monkeypatch=monkeypatch).out
    assert all(name in out for name in METHODS)
