import json

import pytest
from rich.cells import cell_len

from helpers.commands import fedbb
from helpers.run_builder import Sketch, build

HOSTILE = ("\x1b[31mred", "[bold]markup[/bold]", "</script>", "名前" * 40, "a\nb", "x" * 300)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for method in ("fedavg", "fedbb"):
        for seed in range(3):
            build(tmp_path / f"{method}-{seed}", Sketch(method=method, seed=seed))
    return tmp_path


def test_two_groups_are_told_on_a_screen_of_80_columns(runs, monkeypatch):
    done = fedbb("compare", "fedavg-*", "fedbb-*", monkeypatch=monkeypatch)
    assert (done.code, done.err) == (0, "")
    assert "A  FedAvg on digits, long tail 0.1, label skew 0.3, 6 clients; seeds 0–2" in done.out
    for part in (
        "B is ahead of A",
        "method.name",
        "95 % interval",
        "fewest cases (3 of 10)",
        "1 / Σ",
    ):
        assert part in done.out
    assert max(cell_len(line) for line in done.out.splitlines()) <= 80
    assert len(done.out.splitlines()) <= 60


def test_a_run_beside_itself_has_no_difference(runs, monkeypatch):
    done = fedbb("compare", "fedbb-0", "fedbb-0", monkeypatch=monkeypatch)
    assert "No setting differs but the seed" in done.out
    assert "0 gain, 0 lose, 10 neither" in done.out
    assert "Client weights, seed 0: the same in both" in done.out


def test_json_holds_what_the_screen_shows(runs, monkeypatch):
    words = ("compare", "fedavg-*", "fedbb-*", "--json", "--metric", "f1")
    plain = json.loads(fedbb(*words, monkeypatch=monkeypatch).out)
    assert plain["settings"] == [{"key": "method.name", "a": "fedavg", "b": "fedbb"}]
    assert [line["which"] for line in plain["scores"]] == ["final", "best"]
    assert plain["scores"][0]["gap"]["pairs"] == 3
    assert len(plain["classes"]) == 10


def test_quiet_prints_nothing(runs, monkeypatch):
    assert fedbb("compare", "fedavg-0", "fedbb-0", "-q", monkeypatch=monkeypatch).out == ""


def test_many_classes_and_clients_are_cut_to_both_ends(runs, monkeypatch):
    names = tuple(f"class {number}" for number in range(100))
    for method in ("fedavg", "fedbb"):
        sketch = Sketch(method=method, classes=names, clients=40, rounds=1)
        build(runs / f"large-{method}", sketch)
    done = fedbb("compare", "large-fedavg", "large-fedbb", monkeypatch=monkeypatch)
    assert "… 88 more" in done.out
    assert "… 28 more" in done.out
    assert len(done.out.splitlines()) < 70


def test_hostile_names_do_no_harm_on_the_screen(runs, monkeypatch):
    for method in ("fedavg", "fedbb"):
        build(runs / f"odd-{method}", Sketch(method=method, classes=HOSTILE, rounds=1))
    done = fedbb("compare", "odd-fedavg", "odd-fedbb", monkeypatch=monkeypatch)
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "[bold]markup[/bold]" in done.out
    assert "a b" in done.out
    assert max(cell_len(line) for line in done.out.splitlines()) <= 80


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fedavg-0", "nowhere"], "nowhere does not exist"),
        ([".", "fedavg-0"], "differ by more than their seed"),
        (["fedavg-0", "fedbb-0", "--metric", "f2"], "did you mean f1?"),
        (["fedavg-0"], "Missing argument"),
    ],
)
def test_what_cannot_be_compared_is_told_with_exit_code_2(runs, monkeypatch, words, message):
    done = fedbb("compare", *words, monkeypatch=monkeypatch)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
