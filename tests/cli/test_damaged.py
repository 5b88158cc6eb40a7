"""Every verb on a damaged run folder, and on absurd settings: one message and exit code 2."""

import json
import shutil

import numpy as np
import pytest
import torch

from fedbb.recipes.reader import make_recipe
from fedbb.runs.checkpoint import load_checksummed, save_checksummed
from fedbb.runs.runner import run
from helpers.commands import fedbb
from helpers.cover import cover
from helpers.small_run import small_values, write_npz

VERBS = {
    "show": ["show", "run"],
    "report": ["report", "run", "--out", "page.html"],
    "compare": ["compare", "run", "good"],
    "audit": ["audit", "run"],
    "card": ["card", "run"],
    "personalize": ["personalize", "run"],
    "ceiling": ["personalize", "good", "--ceiling", "run"],
    "track": ["track", "run", "--to", "tensorboard=tracked"],
    "resume": ["run", "--resume", "run"],
    "predict": ["predict", "run", "small.npz"],
    "export": ["export", "run", "--to", "state-dict", "--force"],
    "inspect": ["inspect", "run"],
}
READERS = {
    "recipe.json": ["show", "report", "compare", "audit", "personalize", "track", "resume"],
    "federation.json": ["show", "report", "compare", "audit", "track"],
    "environment.json": ["show", "report", "compare", "track", "resume"],
    "model.json": ["resume"],
    "partition.json": ["resume"],
    "rounds.jsonl": ["show", "report", "compare", "audit", "track", "resume"],
    "summary.json": ["show", "report", "compare", "ceiling", "track"],
}
TEXTS = {
    "list": "[]",
    "number": "7",
    "null": "null",
    "other keys": '{"x": 1}',
    "nested": "[" * 2000 + "]" * 2000,
    "nested tables": '{"a":' * 2000 + "1" + "}" * 2000,
    "no text": b"\xff\xfe\n",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("damaged")
    values = small_values(write_npz(place / "small.npz"), rounds={"number": 2})
    records = run(make_recipe(values), place / "part")
    next(records)
    records.close()
    list(run(make_recipe(values), place / "good"))
    return place


def check_refused(answer):
    assert answer.code == 2, answer.out + answer.err
    assert answer.err.startswith("fedbb: ")
    assert "Traceback" not in answer.err


def copy_run(place, verb):
    shutil.rmtree(place / "run", ignore_errors=True)
    shutil.copytree(place / ("part" if verb == "resume" else "good"), place / "run")
    return place / "run"


@pytest.mark.parametrize(("name", "damage"), cover(READERS, ["half", *TEXTS], always=["half"]))
def test_a_damaged_file_ends_every_verb_with_a_message(place, monkeypatch, name, damage):
    monkeypatch.chdir(place)
    # Versions that are missing matter to a resume only.
    unknown = (name, damage) == ("environment.json", "other keys")
    for verb in ["resume"] if unknown else READERS[name]:
        path = copy_run(place, verb) / name
        content = path.read_bytes()
        text = TEXTS.get(damage, content[: len(content) // 2] + b"\n")
        path.write_bytes(text if isinstance(text, bytes) else text.encode() + b"\n")
        check_refused(fedbb(*VERBS[verb], monkeypatch=monkeypatch))


def put(values, key, new):
    *tables, last = key.split(".")
    for table in tables:
        values = values[int(table) if table.isdigit() else table]
    values[last] = new


VALUES = cover(
    [
        ("recipe.json", "seed"),
        ("recipe.json", "data"),
        ("federation.json", "train"),
        ("federation.json", "classes"),
        ("federation.json", "clients"),
        ("federation.json", "clients.0.weight"),
        ("rounds.jsonl", "round"),
        ("rounds.jsonl", "scores"),
        ("rounds.jsonl", "scores.test.macro"),
        ("rounds.jsonl", "scores.test.per_class.recall"),
        ("summary.json", "best"),
        ("summary.json", "metric"),
        ("summary.json", "final.scores.test.per_class.recall"),
    ],
    ["x", None, {}, [[]], 10**400],
    always=["x"],
)


@pytest.mark.parametrize(("name", "key", "new"), VALUES, ids=lambda value: str(value)[:40])
def test_a_value_of_another_type_ends_every_verb_with_a_message(place, monkeypatch, name, key, new):
    monkeypatch.chdir(place)
    for verb in READERS[name]:
        path = copy_run(place, verb) / name
        first, *rest = (
            path.read_text().split("\n") if name == "rounds.jsonl" else [path.read_text()]
        )
        values = json.loads(first)
        put(values, key, new)
        path.write_text("\n".join([json.dumps(values), *rest]))
        answer = fedbb(*VERBS[verb], monkeypatch=monkeypatch)
        # Not every verb reads every value, and some other values can be shown; text never can.
        if new == "x" and verb in ("show", "report", "compare", "track"):
            check_refused(answer)
        assert answer.code in (0, 2), answer.err


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "[" * 2000 + "]" * 2000},
        {"model": "7"},
        {"model": "{}"},
        {"buffers": "7"},
        {"memories": "[" * 2000 + "]" * 2000},
        {"memories": '{"0": [1]}'},
        {"round": "x"},
    ],
)
@pytest.mark.parametrize("verb", ["predict", "export", "card", "personalize"])
def test_a_crafted_model_file_ends_a_verb_with_a_message(place, monkeypatch, verb, changes):
    monkeypatch.chdir(place)
    path = copy_run(place, verb) / "final.safetensors"
    tensors, metadata = load_checksummed(path)
    metadata.pop("sha256")
    save_checksummed(path, tensors, metadata | changes)
    answer = fedbb(*VERBS[verb], monkeypatch=monkeypatch)
    if verb in ("predict", "export"):
        check_refused(answer)
    assert answer.code in (0, 2), answer.err


@pytest.mark.parametrize("verb", ["predict", "export", "personalize"])
def test_a_model_file_of_other_tensors_ends_a_verb_with_a_message(place, monkeypatch, verb):
    monkeypatch.chdir(place)
    path = copy_run(place, verb) / "final.safetensors"
    _, metadata = load_checksummed(path)
    metadata.pop("sha256")
    save_checksummed(path, {"x": torch.zeros(1)}, metadata)
    check_refused(fedbb(*VERBS[verb], monkeypatch=monkeypatch))


@pytest.mark.parametrize(
    "setting",
    [
        "local.lr=1e308",
        "local.device=meta",
        "local.threads=1000000000",
        "local.weight_decay=1e308",
        "seed=" + "[" * 2000 + "]" * 2000,
        "local.epochs=" + "9" * 5000,
    ],
    ids=lambda setting: setting[:14],
)
def test_an_absurd_setting_ends_a_run_with_a_message(place, monkeypatch, setting):
    monkeypatch.chdir(place)
    recipe = place / "recipe.json"
    recipe.write_text(json.dumps(small_values(place / "small.npz", rounds={"number": 1})))
    shutil.rmtree(place / "absurd", ignore_errors=True)
    words = ["run", recipe, "--out", "absurd", "--set", setting]
    check_refused(fedbb(*words, monkeypatch=monkeypatch))


@pytest.mark.parametrize("name", ["deep.toml", "deep.json"])
def test_a_recipe_nested_too_deep_is_refused(tmp_path, monkeypatch, name):
    nested = "[" * 2000 + "]" * 2000
    (tmp_path / name).write_text(nested if name.endswith("json") else f"seed = {nested}\n")
    for verb in ("run", "inspect", "sweep"):
        check_refused(fedbb(verb, tmp_path / name, monkeypatch=monkeypatch))


@pytest.mark.parametrize("model", ["small-cnn", "resnet11"])
def test_images_of_one_pixel_end_a_run_with_a_message_or_work(tmp_path, monkeypatch, model):
    labels = np.arange(40) % 2
    images = np.zeros((40, 1, 1), np.uint8) + labels[:, None, None].astype(np.uint8)
    np.savez(tmp_path / "dots.npz", images=images, labels=labels)
    values = small_values(tmp_path / "dots.npz", rounds={"number": 1}, model={"name": model})
    (tmp_path / "recipe.json").write_text(json.dumps(values))
    words = ["run", tmp_path / "recipe.json", "--out", tmp_path / "run"]
    answer = fedbb(*words, monkeypatch=monkeypatch)
    assert answer.code in (0, 2), answer.err
