import json

import fedbb as package
from helpers.commands import fedbb
from helpers.small_run import finish, small_recipe


def test_runs_are_shown_as_trained_and_with_the_new_classifier(tmp_path, monkeypatch):
    for name, seed in (("one", 0), ("two", 1)):
        finish(small_recipe(tmp_path, seed=seed, rounds={"number": 1}), tmp_path / name)
    words = ("refit", tmp_path / "one", tmp_path / "two", "--rule", "ridge", "--shrinkage", "0.1")
    done = fedbb(*words, monkeypatch=monkeypatch)
    assert done.code == 0, done.err
    for title in ("run", "blend", "accuracy", "worst class", "one", "two", "ridge"):
        assert title in done.out
    found = json.loads(fedbb(*words, "--json", monkeypatch=monkeypatch).out)
    assert [entry["run"] for entry in found] == [str(tmp_path / name) for name in ("one", "two")]
    for entry in found:
        for kind in ("trained", "fitted"):
            assert f"{100 * entry[kind]['test']['macro']['accuracy']:.2f}" in done.out
    assert fedbb(*words, "-q", monkeypatch=monkeypatch).out == ""
    fedbb("refit", tmp_path / "one", "--out", tmp_path / "m.safetensors", monkeypatch=monkeypatch)
    assert package.load_model(tmp_path / "m.safetensors").classes == ("0", "1", "2")


def test_what_cannot_be_done_ends_with_a_message_and_code_2(tmp_path, monkeypatch):
    finish(small_recipe(tmp_path, rounds={"number": 1}), tmp_path / "run")
    for words, message in (
        ((tmp_path,), "is not a run folder"),
        ((tmp_path / "run", "--rule", "svm"), "rule must be one of lda, ridge, means"),
        ((tmp_path / "run", "--blend", "much"), "--blend is a number or validation, not 'much'"),
        ((tmp_path / "run", "--blend", "2"), "blend must be in [0, 1]"),
        ((tmp_path / "run", "--blend", "validation"), "needs validation data"),
        ((tmp_path / "run", tmp_path / "run", "--out", "x"), "--out takes the model of one run"),
    ):
        done = fedbb("refit", *words, monkeypatch=monkeypatch)
        assert done.code == 2
        assert message in done.err.replace("\n", " ")
