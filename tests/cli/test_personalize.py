import json

from helpers.commands import fedbb
from helpers.small_run import finish, small_recipe


def test_each_client_the_mean_and_the_worst_are_shown(tmp_path, monkeypatch):
    finish(small_recipe(tmp_path), tmp_path / "run")
    words = ("personalize", tmp_path / "run", "--alone", "--ceiling", tmp_path / "run")
    done = fedbb(*words, monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    for title in ("shared model", "+ 1 epoch", "alone", "other run", "mean", "worst"):
        assert title in done.out
    found = json.loads(fedbb(*words, "--json", monkeypatch=monkeypatch).out)
    assert found["epochs"] == 1
    assert [row["client"] for row in found["clients"]] == [0, 1, 2]
    assert all(row["shared"] == row["ceiling"] for row in found["clients"])
    assert f"{100 * min(row['adapted'] for row in found['clients']):.2f}" in done.out


def test_without_further_models_their_columns_are_left_out(tmp_path, monkeypatch):
    finish(small_recipe(tmp_path), tmp_path / "run")
    done = fedbb("personalize", tmp_path / "run", "--epochs", 2, monkeypatch=monkeypatch)
    assert "+ 2 epochs" in done.out
    assert "alone" not in done.out
    assert fedbb("personalize", tmp_path / "run", "-q", monkeypatch=monkeypatch).out == ""


def test_no_run_ends_with_a_message_and_code_2(tmp_path, monkeypatch):
    done = fedbb("personalize", tmp_path, monkeypatch=monkeypatch)
    assert done.code == 2
    assert "is not a run folder" in done.err
