import re

from hypothesis import given
from hypothesis import strategies as st

from fedbb.trackers.measures import class_names, clean, measures, summary_measures

RECORD = {
    "round": 3,
    "clients": [
        {"client": 0, "weight": 0.25, "steps": 5, "train_loss": 2.0},
        {"client": 7, "weight": 0.75, "steps": 9, "train_loss": 1.0},
    ],
    "scores": {
        "test": {
            "samples": 9,
            "macro": {"accuracy": 0.5, "f1": None},
            "per_class": {"recall": [1.0, None]},
            "defined": {"accuracy": 2, "f1": 0},
        }
    },
    "seconds": {"train": 0.5, "score": 0.25},
}


def test_of_clients_that_are_hidden_there_are_no_measures():
    hidden = [
        {"client": client, "weight": None, "steps": None, "train_loss": None} for client in range(3)
    ]
    found = measures({**RECORD, "clients": hidden}, ["cat", "dog"])
    assert not any(name.startswith(("clients/", "train/")) for name in found)
    assert found["test/accuracy"] == 0.5


def test_a_record_becomes_named_measures_with_the_round_last():
    found = measures(RECORD, ["cat", "dog"])
    assert found == {
        "test/accuracy": 0.5,
        "test/recall/cat": 1.0,
        "clients/weight/0": 0.25,
        "clients/steps/0": 5.0,
        "clients/train_loss/0": 2.0,
        "clients/weight/7": 0.75,
        "clients/steps/7": 9.0,
        "clients/train_loss/7": 1.0,
        "train/loss": 0.25 * 2.0 + 0.75 * 1.0,
        "seconds/train": 0.5,
        "seconds/score": 0.25,
        "round": 3.0,
    }
    assert list(found)[-1] == "round"


def test_a_number_that_is_not_finite_is_left_out():
    broken = {**RECORD, "seconds": {"train": float("inf"), "score": float("nan")}}
    assert not any(name.startswith("seconds") for name in measures(broken, ["cat", "dog"]))


def test_a_summary_keeps_best_and_final_apart():
    scores = RECORD["scores"]
    summary = {"best": {"round": 2, "scores": scores}, "final": {"round": 3, "scores": scores}}
    assert summary_measures(summary) == {
        "best/round": 2.0,
        "best/test/accuracy": 0.5,
        "final/round": 3.0,
        "final/test/accuracy": 0.5,
    }


def test_hostile_class_names_are_cleaned_and_told_apart():
    hostile = ["<script>", "a/../b", "a b", "a_b", "Ödem", "肺炎", "", "x" * 500, "..", "a_b-3"]
    assert class_names(hostile) == [
        "script",
        "a_b",
        "a_b-2",
        "a_b-3",
        "Odem",
        "class-5",
        "class-6",
        "x" * 60,
        "class-8",
        "a_b-3-9",
    ]


@given(st.lists(st.text(max_size=80), max_size=30))
def test_class_names_are_distinct_and_of_safe_signs_only(classes):
    names = class_names(classes)
    assert len(set(names)) == len(names) == len(classes)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in names)


@given(st.text(max_size=80))
def test_cleaning_twice_changes_nothing(text):
    assert clean(clean(text)) == clean(text)
