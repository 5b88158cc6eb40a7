import json

import pytest

from helpers.commands import fedbb


def test_the_papers_efficiency_table_comes_out_in_its_own_convention(monkeypatch):
    rows = json.loads(fedbb("cost", "--images", "0", "--json", monkeypatch=monkeypatch).out)
    paper = {
        row["method"]: (
            round(row["paper_convention"]["parameters"] / 1e6, 2),
            round(row["paper_convention"]["macs"] / 1e6, 1),
        )
        for row in rows
    }
    assert paper["fedavg"] == paper["fedlc"] == paper["fedbb"] == (0.61, 87.3)
    assert paper["fedprox"] == (1.21, 87.3)
    assert paper["moon"] == (2.21, 262.2)
    assert paper["fedalign"] == (0.61, 89.1)


def test_a_client_round_is_timed_for_each_method(monkeypatch):
    words = ("--model", "small-cnn", "--image", "1x8x8", "--classes", "3", "--images", "16")
    rows = json.loads(fedbb("cost", *words, "--json", monkeypatch=monkeypatch).out)
    assert all(row["seconds"] > 0 for row in rows)
    assert all(row["printed"] is None for row in rows)
    table = fedbb("cost", *words, "--method", "moon+fedlc", monkeypatch=monkeypatch).out
    assert "moon+fedlc" in table


@pytest.mark.parametrize("image", ["32x32", "3x0x32", "big"])
def test_a_size_that_is_none_is_refused(monkeypatch, image):
    done = fedbb("cost", "--image", image, monkeypatch=monkeypatch)
    assert done.code == 2
    assert "channels x height x width" in done.err


OWN = ("--model", "helpers.own_networks:lazy", "--image", "1x8x8", "--classes", "3")


def test_an_own_network_is_measured_only_if_code_is_allowed(monkeypatch):
    refused = fedbb("cost", *OWN, "--images", "4", monkeypatch=monkeypatch)
    assert refused.code == 2
    assert "--allow-code" in refused.err
    words = (*OWN, "--images", "4", "--allow-code")
    rows = json.loads(fedbb("cost", *words, "--json", monkeypatch=monkeypatch).out)
    held = {row["method"]: row["parameters"] for row in rows}
    assert held["fedavg"] == 64 * 16 + 16 + 16 * 3 + 3
    assert held["moon"] == 3 * held["fedavg"]
    assert all(row["seconds"] > 0 for row in rows)
    assert not any("fedalign" in name for name in held)
    shown = fedbb("cost", *words, monkeypatch=monkeypatch).out
    assert "fedalign is left out: FedAlign needs a network" in " ".join(shown.split())
    named = fedbb("cost", *words, "--method", "fedalign", monkeypatch=monkeypatch)
    assert named.code == 2
    assert "FedAlign" in named.err
