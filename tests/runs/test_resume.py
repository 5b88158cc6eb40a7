import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fedbb.errors import RunError
from fedbb.runs.checkpoint import load_checkpoint, save_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import NUMERICS
from fedbb.runs.runner import run
from helpers.cover import few
from helpers.disk_limit import disk_limit
from helpers.small_run import finish, small_recipe, without_seconds, write_npz


@pytest.mark.parametrize("after", few([0, 1, 2, 3, 4], 2))
def test_a_run_left_after_any_round_goes_on_to_the_bit(tmp_path, tally, after):
    recipe = small_recipe(tmp_path)
    whole, expected = finish(recipe, tmp_path / "whole")
    records = run(recipe, tmp_path / "part")
    for _ in range(after):
        next(records)
    records.close()
    resumed, rest = finish(recipe, tmp_path / "part", resume=True)
    assert [record["round"] for record in rest] == list(range(after + 1, 5))
    tally.run(resumed, whole, tmp_path / "part")
    assert without_seconds(RunFolder(tmp_path / "part").records()) == without_seconds(expected)


def test_a_finished_run_is_left_as_it_is(tmp_path):
    recipe = small_recipe(tmp_path)
    before, _ = finish(recipe, tmp_path / "run")
    after, more = finish(recipe, tmp_path / "run", resume=True)
    assert after == before
    assert more == []


def test_a_changed_recipe_is_refused_with_the_difference(tmp_path):
    recipe = small_recipe(tmp_path)
    next(run(recipe, tmp_path / "run")).clear()
    changed = small_recipe(tmp_path, local={"batch_size": 8, "lr": 0.1})
    with pytest.raises(RunError, match=r"local\.lr: 0\.05 before, 0\.1 now"):
        next(run(changed, tmp_path / "run", resume=True))


def test_other_software_is_refused_with_the_difference(tmp_path):
    recipe = small_recipe(tmp_path)
    next(run(recipe, tmp_path / "run")).clear()
    folder = RunFolder(tmp_path / "run")
    folder.write_json("environment.json", folder.read_json("environment.json") | {"torch": "1.0"})
    with pytest.raises(RunError, match=r"torch: 1\.0 before"):
        next(run(recipe, tmp_path / "run", resume=True))


def test_a_version_that_computes_other_bits_is_refused_with_the_difference(tmp_path, monkeypatch):
    recipe = small_recipe(tmp_path)
    next(run(recipe, tmp_path / "run")).clear()
    monkeypatch.setattr("fedbb.runs.metadata.NUMERICS", 2)
    with pytest.raises(RunError, match="numerics: 1 before, 2 now"):
        next(run(recipe, tmp_path / "run", resume=True))
    folder = RunFolder(tmp_path / "run")
    before = folder.read_json("environment.json")
    # Folders of before have no such number.
    folder.write_json("environment.json", {k: v for k, v in before.items() if k != "numerics"})
    with pytest.raises(RunError, match="numerics: 1 before, 2 now"):
        next(run(recipe, tmp_path / "run", resume=True))


@pytest.mark.parametrize("method", ["fedir", "moon+fedir"])
def test_a_method_whose_bits_alone_have_changed_is_refused(tmp_path, method):
    recipe = small_recipe(tmp_path, method={"name": method})
    next(run(recipe, tmp_path / "run")).clear()
    folder = RunFolder(tmp_path / "run")
    before = folder.read_json("environment.json")
    assert before["numerics"] == NUMERICS + 1
    folder.write_json("environment.json", before | {"numerics": NUMERICS})  # as 0.2.0 wrote it
    with pytest.raises(RunError, match="numerics: 1 before, 2 now"):
        next(run(recipe, tmp_path / "run", resume=True))


def test_a_release_that_computes_the_same_bits_resumes(tmp_path):
    recipe = small_recipe(tmp_path)
    next(run(recipe, tmp_path / "run")).clear()
    folder = RunFolder(tmp_path / "run")
    before = folder.read_json("environment.json")
    assert before["numerics"] == NUMERICS
    folder.write_json("environment.json", before | {"fedbb": "0.0.9"})
    assert next(run(recipe, tmp_path / "run", resume=True))["round"] == 2


def test_changed_data_is_refused_on_resume(tmp_path):
    recipe = small_recipe(tmp_path)
    next(run(recipe, tmp_path / "run")).clear()
    write_npz(tmp_path / "small.npz", samples=100)
    with pytest.raises(RunError, match="another way"):
        next(run(recipe, tmp_path / "run", resume=True))


def test_a_flipped_byte_in_the_newest_checkpoint_costs_one_round_and_a_warning(tmp_path, tally):
    recipe = small_recipe(tmp_path)
    whole, _ = finish(recipe, tmp_path / "whole")
    records = run(recipe, tmp_path / "run")
    for _ in range(3):
        next(records)
    records.close()
    newest = tmp_path / "run" / "checkpoints" / "round-000003.safetensors"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 4
    newest.write_bytes(content)
    with pytest.warns(RuntimeWarning, match=r"round-000003.*damaged; the one before it is used"):
        resumed, rest = finish(recipe, tmp_path / "run", resume=True)
    assert [record["round"] for record in rest] == [3, 4]
    tally.run(resumed, whole, tmp_path / "run")


def test_without_any_whole_checkpoint_the_run_is_refused(tmp_path):
    recipe = small_recipe(tmp_path)
    records = run(recipe, tmp_path / "run")
    for _ in range(2):
        next(records)
    records.close()
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    again = run(recipe, tmp_path / "run", resume=True)
    with (
        pytest.warns(RuntimeWarning, match="cannot be used"),
        pytest.raises(RunError, match="no usable checkpoint left"),
    ):
        next(again)


def test_a_torn_or_uncommitted_line_is_dropped_on_resume(tmp_path, tally):
    recipe = small_recipe(tmp_path)
    whole, expected = finish(recipe, tmp_path / "whole")
    records = run(recipe, tmp_path / "run")
    for _ in range(2):
        next(records)
    records.close()
    with (tmp_path / "run" / "rounds.jsonl").open("a") as lines:
        lines.write(json.dumps({"round": 3}) + '\n{"round": 4, "clie')
    resumed, _ = finish(recipe, tmp_path / "run", resume=True)
    tally.run(resumed, whole, tmp_path / "run")
    kept = RunFolder(tmp_path / "run").records()
    assert without_seconds(kept) == without_seconds(expected)


def test_a_full_disk_loses_no_finished_round_and_the_run_goes_on_later(tmp_path, tally):
    recipe = small_recipe(tmp_path)
    whole, _ = finish(recipe, tmp_path / "whole")
    records = run(recipe, tmp_path / "run")
    next(records)
    with disk_limit(5_000), pytest.raises(RunError, match="round 2 could not be saved"):
        next(records)
    assert load_checkpoint(tmp_path / "run/checkpoints/round-000001.safetensors").round == 1
    resumed, _ = finish(recipe, tmp_path / "run", resume=True)
    tally.run(resumed, whole, tmp_path / "run")


@pytest.fixture
def full_disk(monkeypatch):
    """Returns a function that fills the disk for writes of files of a name."""

    def fill(name):
        fsync = os.fsync

        def full(handle):
            if name in Path(f"/proc/self/fd/{handle}").readlink().name:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fsync(handle)

        monkeypatch.setattr(os, "fsync", full)

    return fill


@pytest.mark.parametrize("name", ["final.safetensors", "summary.json"])
def test_a_disk_full_at_the_end_loses_no_round_and_the_run_is_closed_later(
    tmp_path, monkeypatch, full_disk, tally, name
):
    recipe = small_recipe(tmp_path)
    whole, expected = finish(recipe, tmp_path / "whole")
    full_disk(name)
    records = run(recipe, tmp_path / "run")
    with pytest.raises(RunError, match=r"final model could not be saved .* all rounds are kept"):
        list(records)
    monkeypatch.undo()
    resumed, more = finish(recipe, tmp_path / "run", resume=True)
    assert more == []
    tally.run(resumed, whole, tmp_path / "run")
    kept = RunFolder(tmp_path / "run").records()
    assert without_seconds(kept) == without_seconds(expected)


def test_a_disk_full_on_resume_loses_nothing(tmp_path, monkeypatch, full_disk, tally):
    recipe = small_recipe(tmp_path)
    whole, _ = finish(recipe, tmp_path / "whole")
    records = run(recipe, tmp_path / "run")
    next(records)
    records.close()
    full_disk("rounds.jsonl")
    with pytest.raises(RunError, match=r"rounds\.jsonl could not be saved .* No space left"):
        next(run(recipe, tmp_path / "run", resume=True))
    monkeypatch.undo()
    resumed, rest = finish(recipe, tmp_path / "run", resume=True)
    assert [record["round"] for record in rest] == [2, 3, 4]
    tally.run(resumed, whole, tmp_path / "run")


def test_moons_memory_is_kept_for_the_clients_that_trained_and_pruned(tmp_path):
    recipe = small_recipe(
        tmp_path, method={"name": "moon"}, rounds={"number": 6, "participation": 0.4}
    )
    list(run(recipe, tmp_path / "run"))
    folder = RunFolder(tmp_path / "run")
    trained = {client["client"] for record in folder.records() for client in record["clients"]}
    checkpoint = folder.latest()
    assert set(checkpoint.state_rounds) == trained
    for client, number in checkpoint.state_rounds.items():
        assert folder.client_states.load(client, number).model is not None
    assert len(list(folder.file("memories").iterdir())) <= 2 * len(trained)


def test_a_damaged_newest_checkpoint_takes_the_memory_before_it_as_well(tmp_path):
    recipe = small_recipe(tmp_path, method={"name": "moon"}, rounds={"number": 5})
    whole, _ = finish(recipe, tmp_path / "whole")
    records = run(recipe, tmp_path / "run")
    for _ in range(3):
        next(records)
    records.close()
    (tmp_path / "run" / "checkpoints" / "round-000003.safetensors").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match="the one before it is used"):
        resumed, _ = finish(recipe, tmp_path / "run", resume=True)
    assert resumed["sha256"] == whole["sha256"]


def test_methods_without_memory_write_none(tmp_path):
    list(run(small_recipe(tmp_path), tmp_path / "run"))
    assert list((tmp_path / "run" / "memories").iterdir()) == []


def two_rounds(tmp_path, name, **changes):
    """Run two of four rounds; return the recipe and the folder."""
    recipe = small_recipe(tmp_path, **changes)
    records = run(recipe, tmp_path / name)
    for _ in range(2):
        next(records)
    records.close()
    return recipe, tmp_path / name


def other_type(checkpoint):
    params = {name: tensor.double() for name, tensor in checkpoint.state.params.items()}
    return replace(checkpoint, state=replace(checkpoint.state, params=params))


def other_shape(checkpoint):
    params = {name: tensor[..., None] for name, tensor in checkpoint.state.params.items()}
    return replace(checkpoint, state=replace(checkpoint.state, params=params))


def without_a_name(checkpoint):
    params = dict(list(checkpoint.state.params.items())[1:])
    return replace(checkpoint, state=replace(checkpoint.state, params=params))


@pytest.mark.parametrize(
    ("change", "words"),
    few(
        [
            (other_type, "network differs"),
            (other_shape, "network differs"),
            (without_a_name, "network differs"),
            (lambda checkpoint: replace(checkpoint, round=1), "it is of round 1"),
            (lambda checkpoint: replace(checkpoint, round=3), "it is of round 3"),
            (lambda checkpoint: replace(checkpoint, run="f" * 64), "it is of another run"),
            (lambda checkpoint: replace(checkpoint, state_rounds={0: 3}), "from round 3"),
            (lambda checkpoint: replace(checkpoint, state_rounds={0: "x"}), "from round 'x'"),
        ],
        4,
    ),
)
def test_an_intact_checkpoint_that_does_not_belong_to_the_round_is_not_used(
    tmp_path, change, words
):
    whole, _ = finish(small_recipe(tmp_path), tmp_path / "whole")
    recipe, folder = two_rounds(tmp_path, "run")
    newest = folder / "checkpoints" / "round-000002.safetensors"
    save_checkpoint(newest, change(load_checkpoint(newest)))
    with pytest.warns(RuntimeWarning, match=f"{words}.*; the one before it is used"):
        resumed, rest = finish(recipe, folder, resume=True)
    assert [record["round"] for record in rest] == [2, 3, 4]
    assert resumed["sha256"] == whole["sha256"]


def test_a_checkpoint_of_another_run_is_not_used(tmp_path):
    recipe, folder = two_rounds(tmp_path, "run")
    _, other = two_rounds(tmp_path, "other", seed=5)
    for path in (folder / "checkpoints").iterdir():
        path.write_bytes((other / "checkpoints" / path.name).read_bytes())
    with (
        pytest.warns(RuntimeWarning, match="it is of another run"),
        pytest.raises(RunError, match="no usable checkpoint left"),
    ):
        finish(recipe, folder, resume=True)


def test_a_checkpoint_without_its_run_is_one_of_an_older_version(tmp_path):
    whole, _ = finish(small_recipe(tmp_path), tmp_path / "whole")
    recipe, folder = two_rounds(tmp_path, "run")
    for path in (folder / "checkpoints").iterdir():
        save_checkpoint(path, replace(load_checkpoint(path), run=None))
    resumed, rest = finish(recipe, folder, resume=True)
    assert [record["round"] for record in rest] == [3, 4]
    assert resumed["sha256"] == whole["sha256"]


def test_lines_of_other_rounds_are_refused(tmp_path):
    recipe, folder = two_rounds(tmp_path, "run")
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (folder / "rounds.jsonl").write_text(lines[0])
    with pytest.raises(RunError, match=r"rounds\.jsonl holds 1 of 2 rounds"):
        finish(recipe, folder, resume=True)
    (folder / "rounds.jsonl").write_text("".join(reversed(lines)))
    with pytest.raises(RunError, match="does not hold rounds 1, 2, … in order"):
        finish(recipe, folder, resume=True)
