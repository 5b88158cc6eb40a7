import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedbb.errors import DivergedError, FedbbError, QuorumError, RecipeError, RunError
from fedbb.models.base import NetworkModule, Outputs
from fedbb.models.registry import MODELS
from fedbb.models.small import SmallCNN
from fedbb.partition.registry import Rule
from fedbb.recipes.reader import make_recipe
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import FILES, RunFolder, hold
from fedbb.runs.runner import run
from fedbb.state import digest
from helpers.small_run import finish, small_recipe, without_seconds


def test_the_same_recipe_twice_gives_the_same_model_to_the_bit(tmp_path):
    recipe = small_recipe(tmp_path)
    one, first = finish(recipe, tmp_path / "one")
    two, second = finish(recipe, tmp_path / "two")
    assert one["sha256"] == two["sha256"]
    assert without_seconds(first) == without_seconds(second)


def test_another_seed_gives_another_model(tmp_path):
    sums = {finish(small_recipe(tmp_path, seed=s), tmp_path / str(s))[0]["sha256"] for s in (0, 1)}
    assert len(sums) == 2


def test_a_run_folder_holds_what_it_promises(tmp_path):
    recipe = small_recipe(tmp_path)
    summary, records = finish(recipe, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert {entry.name for entry in folder.path.iterdir()} == set(FILES)
    assert make_recipe(folder.read_json("recipe.json")) == recipe
    assert folder.records() == records
    assert [record["round"] for record in records] == [1, 2, 3, 4]
    final = load_checkpoint(folder.file("final.safetensors"))
    assert (final.round, digest(final.state)) == (4, summary["sha256"])
    best = load_checkpoint(folder.file("best.safetensors"))
    assert best.round == summary["best"]["round"]
    assert len(list(folder.file("checkpoints").iterdir())) == 2
    federation = folder.read_json("federation.json")
    assert sum(client["samples"] for client in federation["clients"]) == federation["train"] == 60
    assert sum(client["weight"] for client in federation["clients"]) == pytest.approx(1)
    assert folder.read_json("environment.json")["torch"] == torch.__version__


def test_the_best_round_is_the_first_with_the_highest_score(tmp_path):
    summary, records = finish(small_recipe(tmp_path, rounds={"number": 8}), tmp_path / "run")
    scores = [record["scores"]["test"]["macro"]["balanced_accuracy"] for record in records]
    assert summary["best"]["round"] == 1 + int(np.argmax(scores))
    assert load_checkpoint(tmp_path / "run/best.safetensors").round == summary["best"]["round"]
    assert summary["best"]["chosen_on"] == "test"
    assert summary["final"]["scores"] == records[-1]["scores"]


def test_validation_data_chooses_the_best_round_when_there_is_some(tmp_path):
    recipe = small_recipe(tmp_path)
    data = recipe.data.model_copy(update={"validation": 0.25})
    summary, records = finish(recipe.model_copy(update={"data": data}), tmp_path / "run")
    scores = [record["scores"]["validation"]["macro"]["balanced_accuracy"] for record in records]
    assert summary["best"]["chosen_on"] == "validation"
    assert summary["best"]["round"] == 1 + int(np.argmax(scores))
    assert records[0]["scores"]["validation"]["samples"] == 15


def test_the_chosen_metric_judges(tmp_path):
    recipe = small_recipe(tmp_path, evaluation={"metric": "auroc"})
    summary, records = finish(recipe, tmp_path / "run")
    scores = [record["scores"]["test"]["macro"]["auroc"] for record in records]
    assert summary["metric"] == "auroc"
    assert summary["best"]["round"] == 1 + int(np.argmax(scores))


def test_a_folder_with_a_run_is_not_overwritten_without_resume(tmp_path):
    recipe = small_recipe(tmp_path)
    finish(recipe, tmp_path / "run")
    with pytest.raises(RunError, match="holds a run already; --resume"):
        next(run(recipe, tmp_path / "run"))


HOLDER = """
import sys, time
from pathlib import Path
from fedbb.runs.folder import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_two_processes_cannot_use_one_folder_and_a_killed_one_uses_none(tmp_path):
    recipe, folder = small_recipe(tmp_path), tmp_path / "run"
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "held\n"
            with pytest.raises(RunError, match="in use by another process"):
                next(run(recipe, folder))
        finally:
            other.kill()
    assert other.returncode == -signal.SIGKILL
    next(run(recipe, folder)).clear()


def test_the_line_of_a_round_is_on_disk_before_its_checkpoint_counts(tmp_path, monkeypatch):
    """A power cut after the rename must not leave a checkpoint without its round."""
    events, sync, rename = [], os.fsync, os.replace

    def noting_sync(handle):
        lines = tmp_path / "run" / "rounds.jsonl"
        if lines.exists() and os.path.samestat(os.fstat(handle), lines.stat()):
            events.append(f"sync {lines.stat().st_size} bytes of lines")
        sync(handle)

    def noting_rename(source, target):
        events.append(f"rename {Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noting_sync)
    monkeypatch.setattr(os, "replace", noting_rename)
    next(run(small_recipe(tmp_path), tmp_path / "run")).clear()
    size = (tmp_path / "run" / "rounds.jsonl").stat().st_size
    committed = events.index("rename round-000001.safetensors")
    assert events.index(f"sync {size} bytes of lines") < committed


def test_what_a_killed_process_left_half_written_is_removed(tmp_path):
    recipe = small_recipe(tmp_path)
    next(run(recipe, tmp_path / "run")).clear()
    for folder in ("", "checkpoints", "memories"):
        (tmp_path / "run" / folder / ".round.safetensors.1-ff.part").write_bytes(b"half")
    next(run(recipe, tmp_path / "run", resume=True)).clear()
    assert list((tmp_path / "run").rglob("*.part")) == []


def test_one_process_cannot_use_one_folder_twice(tmp_path):
    recipe = small_recipe(tmp_path)
    with hold(tmp_path / "run"), pytest.raises(RunError, match="in use by another process"):
        next(run(recipe, tmp_path / "run"))


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_what_was_before(tmp_path):
    recipe = small_recipe(tmp_path, local={"batch_size": 8, "lr": 1e6}, rounds={"number": 50})
    records = []
    with pytest.raises(DivergedError, match=r"round \d+, client \d+, method FedBB"):
        records.extend(run(recipe, tmp_path / "run"))
    kept = RunFolder(tmp_path / "run").records()
    assert all(record["round"] == place for place, record in enumerate(kept, start=1))


@pytest.mark.parametrize("engine", ["inline", "pool"])
def test_training_that_diverges_in_round_1_leaves_no_folder_in_the_way(tmp_path, engine):
    wild = small_recipe(tmp_path, local={"batch_size": 8, "lr": 1e30}, engine=engine)
    with pytest.raises(DivergedError, match="round 1"):
        next(run(wild, tmp_path / "run", workers=1))
    assert not (tmp_path / "run").exists()
    next(run(small_recipe(tmp_path), tmp_path / "run")).clear()


def test_too_few_usable_updates_in_round_1_leave_no_folder_in_the_way(tmp_path):
    strict = small_recipe(tmp_path, defense={"max_norm": 1e-300})
    with pytest.raises(QuorumError, match="round 1"):
        next(run(strict, tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    next(run(small_recipe(tmp_path), tmp_path / "run")).clear()


def end_by(path, error, *, finished):
    """Set a run up, finish some rounds, and end it by an error."""
    with hold(path, lasting=(DivergedError,)) as folder:
        folder.write_json("recipe.json", {})
        for number in range(1, finished + 1):
            (path / "checkpoints" / f"round-{number:06d}.safetensors").touch()
        raise error


@pytest.mark.parametrize(("error", "finished"), [(DivergedError, 1), (RunError, 0)])
def test_a_run_that_has_rounds_or_may_be_resumed_is_kept(tmp_path, error, finished):
    with pytest.raises(error):
        end_by(tmp_path / "run", error("ends here"), finished=finished)
    assert RunFolder(tmp_path / "run").is_run()


def test_an_unknown_method_or_option_is_refused_before_a_folder_is_made(tmp_path):
    for method in ({"name": "fedbbb"}, {"name": "fedbb", "options": {"beta": 1.0}}):
        with pytest.raises(RecipeError, match="fedbb"):
            next(run(small_recipe(tmp_path, method=method), tmp_path / "run"))
    with pytest.raises(RecipeError, match="resnet56"):
        next(run(small_recipe(tmp_path, model={"name": "resnet5"}), tmp_path / "run"))


def test_a_folder_with_other_things_in_it_is_refused(tmp_path):
    recipe = small_recipe(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(RunError, match=r"such as thesis\.tex"):
        next(run(recipe, tmp_path / "mine"))
    with pytest.raises(RunError, match="is a file"):
        next(run(recipe, tmp_path / "small.npz"))


def test_threads_are_set_by_the_recipe_and_put_back(tmp_path):
    before = torch.get_num_threads()
    recipe = small_recipe(tmp_path, local={"threads": 2})
    records = run(recipe, tmp_path / "run")
    next(records)
    assert torch.get_num_threads() == 2
    records.close()
    assert torch.get_num_threads() == before


class OneStage(SmallCNN):
    """A network that cannot run its last stage again."""

    tail = NetworkModule.tail

    def forward(self, images):
        grid = F.adaptive_avg_pool2d(self.conv2(self.conv1(images)), 4)
        embedding = F.relu(self.hidden(grid.flatten(1)))
        return Outputs(self.fc(embedding), embedding, (grid,))


def tiny_images(folder):
    """Return the recipe of data whose images have a single pixel."""
    recipe = small_recipe(folder)
    arrays = dict(np.load(folder / "small.npz"))
    np.savez(folder / "small.npz", **{**arrays, "images": arrays["images"][:, :1, :1]})
    return recipe


def multi_label(folder):
    """Return the recipe of FedLC on multi-label data, which is noticed once they are loaded."""
    recipe = small_recipe(folder, method={"name": "fedlc"})
    arrays = dict(np.load(folder / "small.npz"))
    labels = np.eye(3, dtype=np.float32)[arrays["labels"]]
    np.savez(folder / "small.npz", **{**arrays, "labels": labels})
    return recipe


SET_UPS = {
    "image too small": (tiny_images, "SmallCNN cannot take the 1×1×1 images"),
    "unknown device": (
        lambda folder: small_recipe(folder, local={"device": "warp"}),
        r"local\.device 'warp' is unknown",
    ),
    "method and task": (multi_label, "FedLC is not defined for multilabel data"),
    "no stages": (
        lambda folder: small_recipe(folder, method={"name": "fedalign"}, model={"name": "one"}),
        "FedAlign needs a network of at least two stages .* and OneStage is none",
    ),
    "too many clients": (
        lambda folder: small_recipe(
            folder,
            data={
                "name": "npz",
                "path": str(folder / "small.npz"),
                "partition": {"kind": "even", "clients": 99},
            },
        ),
        "allowed: 1 to 60",
    ),
}


@pytest.mark.parametrize("engine", ["inline", "pool"])
@pytest.mark.parametrize("case", SET_UPS)
def test_a_run_that_fails_in_set_up_leaves_no_folder_in_the_way(
    tmp_path, monkeypatch, case, engine
):
    monkeypatch.setitem(MODELS, "one", OneStage)
    make, words = SET_UPS[case]
    recipe = make(tmp_path).model_copy(update={"engine": engine})
    with pytest.raises(FedbbError, match=words):
        next(run(recipe, tmp_path / "run", workers=1))
    assert not (tmp_path / "run").exists()
    next(run(small_recipe(tmp_path), tmp_path / "run")).clear()


def test_a_failed_set_up_leaves_a_folder_of_before_as_it_was(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(RecipeError, match="cannot take the 1×1×1 images"):
        next(run(tiny_images(tmp_path), tmp_path / "run"))
    assert (tmp_path / "run").exists()
    assert not RunFolder(tmp_path / "run").is_run()
    next(run(small_recipe(tmp_path), tmp_path / "run")).clear()


def test_clients_that_cannot_learn_are_noted(tmp_path):
    recipe = small_recipe(tmp_path)
    labels = np.load(tmp_path / "small.npz")["labels"]
    np.savez(
        tmp_path / "small.npz",
        **dict(np.load(tmp_path / "small.npz")),
        site=np.array([f"site {label}" for label in labels]),
    )
    partition = Rule(kind="column", column="site")
    data = recipe.data.model_copy(update={"partition": partition})
    list(run(recipe.model_copy(update={"data": data}), tmp_path / "run"))
    notes = RunFolder(tmp_path / "run").read_json("federation.json")["notes"]
    assert len(notes) == 3
    assert notes[0] == (
        "client 0: every class has one kind of case only, so PNB gives all weight 0 "
        "and the client learns nothing"
    )


def test_a_recipe_that_cannot_run_leaves_no_run_behind(tmp_path):
    with pytest.raises(RecipeError, match="resnet5"):
        next(run(small_recipe(tmp_path, model={"name": "resnet5"}), tmp_path / "run"))
    assert not RunFolder(tmp_path / "run").is_run()
    assert len(list(run(small_recipe(tmp_path), tmp_path / "run"))) == 4


def test_equal_runs_write_equal_model_files(tmp_path):
    recipe = small_recipe(tmp_path)
    for name in ("one", "two"):
        list(run(recipe, tmp_path / name))
    one, two = ((tmp_path / name / "final.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two
