"""CLIP2FL: the published divergence, its laws, and CReFF where both of its terms are 0."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedbb
from fedbb.data.registry import load_dataset
from fedbb.data.source import Source
from fedbb.errors import DataError, RecipeError, RunError
from fedbb.methods.clip2fl import distill
from fedbb.recipes.reader import make_recipe
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import read_run_recipe
from fedbb.runs.runner import run
from helpers.commands import fedbb as command
from helpers.small_run import finish, small_recipe
from helpers.toy import toy_dataset

STUDENT, TEACHER = torch.tensor([[2.0, 0, -1]]), torch.tensor([[25.0, 22, 20]])
SERVER = {"features": 4, "steps": 3, "epochs": 2}
TEXT = ((1.0, 0.0, 0.5), (0.0, 1.0, 0.0), (0.2, 0.0, 1.0))


def test_the_divergence_has_the_published_value():
    found = distill(STUDENT.double(), TEACHER.double(), 3.0)
    assert found.item() == pytest.approx(0.267324822, abs=1e-8)


def test_it_is_never_below_zero_and_zero_for_the_teachers_own_logits():
    assert distill(STUDENT, STUDENT, 3.0).item() == pytest.approx(0, abs=1e-6)
    assert distill(STUDENT, TEACHER, 3.0).item() > 0
    torch.testing.assert_close(distill(STUDENT, TEACHER + 7, 3.0), distill(STUDENT, TEACHER, 3.0))


def network():
    size = toy_dataset().train.inputs[0].size
    return nn.Sequential(nn.Flatten(), nn.Linear(size, 6), nn.ReLU(), nn.Linear(6, 3))


def simulate(method, **settings):
    data = toy_dataset()
    clients = fedbb.partition.dirichlet(data, clients=3, concentration=0.5, seed=1)
    local = fedbb.LocalConfig(batch_size=4, lr=0.05)
    return fedbb.simulate(
        data, clients, model=network, method=method, local=local, rounds=2, **settings
    )


def test_without_teacher_and_contrast_it_is_creff_to_the_bit():
    def never(images):
        raise AssertionError("a teacher of no strength is not asked")

    plain = fedbb.methods.clip2fl(teacher=never, alpha=0.0, contrast=0.0, **SERVER)
    assert simulate(plain).sha256 == simulate(fedbb.methods.creff(**SERVER)).sha256


def test_a_trained_teacher_and_prototypes_change_the_result_alike_on_any_engine(tmp_path):
    teacher = simulate("fedavg").model
    method = fedbb.methods.clip2fl(teacher=teacher, prototypes=TEXT, **SERVER)
    whole = simulate(method, out=tmp_path / "run")
    assert whole.sha256 != simulate(fedbb.methods.creff(**SERVER)).sha256
    assert simulate(method, workers=2).sha256 == whole.sha256
    state = load_checkpoint(tmp_path / "run" / "checkpoints" / "round-000002.safetensors")
    assert "creff.features" in state.server
    with pytest.raises(ValueError, match="needs a prototype of each class"):
        fedbb.methods.clip2fl(teacher=teacher, contrast=0.1)


@pytest.fixture
def recipe(tmp_path):
    """A recipe with a file of the logits that a network of random weights gives the data."""
    values = small_recipe(tmp_path).model_dump()
    values |= {"rounds": {"number": 2}}
    values["data"] |= {"train_images": 50, "validation": 0.1}
    data = load_dataset(Source("npz", path=tmp_path / "small.npz"))
    logits = np.random.default_rng(5).normal(size=(len(data.train), 3)) * 4
    file = str(tmp_path / "teacher.npz")
    fedbb.data.save_teacher(file, data, logits, TEXT)
    values["method"] = {
        "name": "clip2fl",
        "options": {"teacher": file, "prototypes": file, **SERVER},
    }
    return make_recipe(values)


def with_options(recipe, **options):
    method = recipe.method.model_copy(update={"options": {**recipe.method.options, **options}})
    return recipe.model_copy(update={"method": method})


def test_a_file_gives_the_bits_of_the_same_logits_as_a_function(tmp_path):
    data = toy_dataset()
    data = replace(data, augmentation=fedbb.data.Augmentation())
    known = {row.tobytes(): row for row in data.train.inputs}
    logits = {key: row.reshape(-1)[:3] * 3 for key, row in known.items()}
    rows = np.stack([logits[row.tobytes()] for row in data.train.inputs])
    fedbb.data.save_teacher(tmp_path / "teacher.npz", data, rows)

    def teacher(images):
        return torch.stack([torch.from_numpy(logits[image.numpy().tobytes()]) for image in images])

    clients = fedbb.partition.dirichlet(data, clients=3, concentration=0.5, seed=1)
    local = fedbb.LocalConfig(batch_size=4, lr=0.05, channels_last=False)
    by_file, by_function = (
        fedbb.simulate(
            data,
            clients,
            model=network,
            method=fedbb.methods.clip2fl(teacher=given, **SERVER),
            local=local,
            rounds=2,
            validation=0.2,
        )
        for given in (str(tmp_path / "teacher.npz"), teacher)
    )
    assert by_file.sha256 == by_function.sha256
    assert by_file.sha256 != simulate(fedbb.methods.creff(**SERVER)).sha256


def test_a_recipe_with_a_teacher_file_gives_one_result_on_any_engine_and_after_a_resume(
    tmp_path, recipe
):
    whole, _ = finish(recipe, tmp_path / "inline")
    changed = with_options(recipe, alpha=0.5)
    assert finish(changed, tmp_path / "changed")[0]["sha256"] != whole["sha256"]
    rounds = run(recipe, tmp_path / "part")
    next(rounds)
    rounds.close()
    assert finish(recipe, tmp_path / "part", resume=True)[0]["sha256"] == whole["sha256"]
    pooled = recipe.model_copy(update={"engine": "pool"})
    assert finish(pooled, tmp_path / "pool", workers=2)[0]["sha256"] == whole["sha256"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3])
def test_other_numbers_of_workers_give_the_same_result(tmp_path, recipe, workers):
    whole, _ = finish(recipe, tmp_path / "inline")
    pooled = recipe.model_copy(update={"engine": "pool"})
    assert finish(pooled, tmp_path / "pool", workers=workers)[0]["sha256"] == whole["sha256"]


def test_a_run_is_bound_to_the_content_of_its_teachers_file(tmp_path, recipe):
    file = Path(recipe.method.options["teacher"])
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    left = run(recipe, tmp_path / "part")
    next(left)
    left.close()
    assert read_run_recipe(RunFolder(tmp_path / "part")).method.teacher_sha256 == sha256
    data = load_dataset(Source("npz", path=tmp_path / "small.npz"))
    kept = file.read_bytes()
    fedbb.data.save_teacher(file, data, np.zeros((len(data.train), 3)), TEXT)
    with pytest.raises(RunError, match=rf"teacher_sha256: '{sha256}' before, '[0-9a-f]+' now"):
        finish(recipe, tmp_path / "part", resume=True)
    # As the command line resumes a folder: by the recipe in it.
    stored = read_run_recipe(RunFolder(tmp_path / "part"))
    with pytest.raises(RunError, match=rf"{file} is not the one of the run: its SHA-256 is "):
        finish(stored, tmp_path / "part", resume=True)
    file.write_bytes(kept)
    assert finish(stored, tmp_path / "part", resume=True)[0]["rounds"] == 2


def test_a_digest_in_the_recipe_is_checked_and_own_files_are_not(tmp_path, recipe):
    wrong = with_digest(recipe, "0" * 64)
    with pytest.raises(RunError, match=r"method\.teacher_sha256 is 0000"):
        finish(wrong, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    finish(with_digest(recipe, "own"), tmp_path / "run")
    with pytest.raises(RecipeError, match="teacher_sha256"):
        make_recipe(with_digest(recipe, "12").model_dump())


def with_digest(recipe, sha256):
    method = recipe.method.model_copy(update={"teacher_sha256": sha256})
    return recipe.model_copy(update={"method": method})


def test_what_cannot_be_learnt_from_is_refused_and_leaves_nothing_behind(tmp_path, recipe):
    data = load_dataset(Source("npz", path=tmp_path / "small.npz"))
    plain, few = (str(tmp_path / name) for name in ("plain.npz", "few.npz"))
    fedbb.data.save_teacher(plain, data, np.zeros((len(data.train), 3)))
    np.savez(few, logits=np.zeros((50, 3)), text=np.eye(2))
    for options, message in (
        ({"teacher": ""}, r"CLIP2FL needs the logits of a teacher: method.options.teacher"),
        ({"teacher": "absent.npz"}, "absent.npz"),
        ({"teacher": few}, r"needs floats of shape \(60, 3\)"),
        ({"teacher": 5}, "wrong type"),
        ({"prototypes": plain}, "no array 'text'"),
        ({"prototypes": few}, r"text is .*needed: floats of shape \(3, E\)"),
        ({"prototypes": [[1.0], [2.0]]}, "CLIP2FL: there are 2 prototypes for 3 classes"),
        ({"prototypes": "", "contrast": 0.1}, "contrast above 0 needs a prototype"),
    ):
        with pytest.raises((RecipeError, DataError), match=message):
            finish(with_options(recipe, **options), tmp_path / "run")
        assert not (tmp_path / "run").exists()
    finish(with_options(recipe, prototypes=""), tmp_path / "run")


def test_the_command_line_takes_a_teacher_file(tmp_path, recipe, monkeypatch):
    path = tmp_path / "recipe.json"
    path.write_text(recipe.model_dump_json())
    options = ("--set", 'method.options.teacher="other.npz"')
    failed = command("run", path, *options, "--out", tmp_path / "run", monkeypatch=monkeypatch)
    assert failed.code == 2
    assert "other.npz" in failed.err
    done = command("run", path, "--out", tmp_path / "run", monkeypatch=monkeypatch)
    assert done.code == 0
