import json
import re
import resource

import numpy as np
import pytest
import torch

from fedbb.errors import DivergedError, RecipeError, RunError
from fedbb.recipes.reader import make_recipe
from fedbb.recipes.spec import PartitionSpec
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import FILES, RunFolder, hold
from fedbb.runs.runner import run
from fedbb.state import digest
from small_run import small_recipe


def finish(recipe, path, **options):
    records = list(run(recipe, path, **options))
    return RunFolder(path).read_json("summary.json"), records


def without_seconds(records):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


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


@pytest.mark.parametrize("after", [0, 1, 2, 3, 4])
def test_a_run_left_after_any_round_goes_on_to_the_bit(tmp_path, after):
    recipe = small_recipe(tmp_path)
    whole, expected = finish(recipe, tmp_path / "whole")
    records = run(recipe, tmp_path / "part")
    for _ in range(after):
        next(records)
    records.close()
    resumed, rest = finish(recipe, tmp_path / "part", resume=True)
    assert [record["round"] for record in rest] == list(range(after + 1, 5))
    assert resumed["sha256"] == whole["sha256"]
    assert without_seconds(RunFolder(tmp_path / "part").records()) == without_seconds(expected)


def test_a_finished_run_is_left_as_it_is(tmp_path):
    recipe = small_recipe(tmp_path)
    before, _ = finish(recipe, tmp_path / "run")
    after, more = finish(recipe, tmp_path / "run", resume=True)
    assert after == before
    assert more == []


def test_a_folder_with_a_run_is_not_overwritten_without_resume(tmp_path):
    recipe = small_recipe(tmp_path)
    finish(recipe, tmp_path / "run")
    with pytest.raises(RunError, match="holds a run already; --resume"):
        next(run(recipe, tmp_path / "run"))


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


def test_changed_data_is_refused_on_resume(tmp_path):
    from small_run import write_npz

    recipe = small_recipe(tmp_path)
    next(run(recipe, tmp_path / "run")).clear()
    write_npz(tmp_path / "small.npz", samples=100)
    with pytest.raises(RunError, match="another way"):
        next(run(recipe, tmp_path / "run", resume=True))


def test_two_processes_cannot_use_one_folder(tmp_path):
    recipe = small_recipe(tmp_path)
    with hold(tmp_path / "run"), pytest.raises(RunError, match="in use by another process"):
        next(run(recipe, tmp_path / "run"))
    next(run(recipe, tmp_path / "run")).clear()


def test_a_flipped_byte_in_the_newest_checkpoint_costs_one_round_and_a_warning(tmp_path):
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
    assert resumed["sha256"] == whole["sha256"]


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


def test_a_torn_or_uncommitted_line_is_dropped_on_resume(tmp_path):
    recipe = small_recipe(tmp_path)
    whole, expected = finish(recipe, tmp_path / "whole")
    records = run(recipe, tmp_path / "run")
    for _ in range(2):
        next(records)
    records.close()
    with (tmp_path / "run" / "rounds.jsonl").open("a") as lines:
        lines.write(json.dumps({"round": 3}) + '\n{"round": 4, "clie')
    resumed, _ = finish(recipe, tmp_path / "run", resume=True)
    assert resumed["sha256"] == whole["sha256"]
    kept = RunFolder(tmp_path / "run").records()
    assert without_seconds(kept) == without_seconds(expected)


def test_a_full_disk_loses_no_finished_round_and_the_run_goes_on_later(tmp_path):
    recipe = small_recipe(tmp_path)
    whole, _ = finish(recipe, tmp_path / "whole")
    records = run(recipe, tmp_path / "run")
    next(records)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
    try:
        with pytest.raises(RunError, match="round 2 could not be saved"):
            next(records)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert load_checkpoint(tmp_path / "run/checkpoints/round-000001.safetensors").round == 1
    resumed, _ = finish(recipe, tmp_path / "run", resume=True)
    assert resumed["sha256"] == whole["sha256"]


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_what_was_before(tmp_path):
    recipe = small_recipe(tmp_path, local={"batch_size": 8, "lr": 1e6}, rounds={"number": 50})
    records = []
    with pytest.raises(DivergedError, match=r"round \d+, client \d+, method FedBB"):
        records.extend(run(recipe, tmp_path / "run"))
    kept = RunFolder(tmp_path / "run").records()
    assert all(record["round"] == place for place, record in enumerate(kept, start=1))


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


def test_a_device_that_is_not_there_is_refused(tmp_path):
    recipe = small_recipe(tmp_path, local={"device": "warp"})
    with pytest.raises(RecipeError, match=r"local\.device 'warp' cannot be used"):
        next(run(recipe, tmp_path / "run"))


def test_clients_that_cannot_learn_are_noted(tmp_path):
    recipe = small_recipe(tmp_path)
    labels = np.load(tmp_path / "small.npz")["labels"]
    np.savez(
        tmp_path / "small.npz",
        **dict(np.load(tmp_path / "small.npz")),
        site=np.array([f"site {label}" for label in labels]),
    )
    partition = recipe.data.partition.model_copy(update={"kind": "column", "column": "site"})
    partition = partition.model_copy(update={"clients": None})
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


def test_moons_memory_is_kept_for_the_clients_that_trained_and_pruned(tmp_path):
    recipe = small_recipe(
        tmp_path, method={"name": "moon"}, rounds={"number": 6, "participation": 0.4}
    )
    list(run(recipe, tmp_path / "run"))
    folder = RunFolder(tmp_path / "run")
    trained = {client["client"] for record in folder.records() for client in record["clients"]}
    checkpoint = folder.latest()
    assert set(checkpoint.memories) == trained
    assert set(folder.memories(checkpoint)) == trained
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


def test_equal_runs_write_equal_model_files(tmp_path):
    recipe = small_recipe(tmp_path)
    for name in ("one", "two"):
        list(run(recipe, tmp_path / name))
    one, two = ((tmp_path / name / "final.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


NONE = PartitionSpec()
MOSAIC = {"name": "digit-mosaic", "partition": {"kind": "even", "clients": 3}}


def central(folder, **changes):
    recipe = small_recipe(folder, engine="central", **changes)
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"partition": NONE})})


def test_central_training_is_one_client_whose_momentum_goes_on(tmp_path):
    recipe = central(tmp_path, method={"name": "fedavg"}, rounds={"number": 3})
    summary, records = finish(recipe, tmp_path / "run")
    assert [len(record["clients"]) for record in records] == [1, 1, 1]
    assert records[0]["clients"][0]["steps"] == 8
    memory = RunFolder(tmp_path / "run").memories(RunFolder(tmp_path / "run").latest())[0]
    assert memory.momentum is not None
    left = run(recipe, tmp_path / "left")
    next(left)
    left.close()
    assert finish(recipe, tmp_path / "left", resume=True)[0]["sha256"] == summary["sha256"]


def test_central_training_differs_from_a_federation_of_one_only_by_its_momentum(tmp_path):
    local = {"batch_size": 8, "lr": 0.05, "momentum": 0.0}
    options = {"method": {"name": "fedavg"}, "local": local}
    alone = small_recipe(tmp_path, **options)
    partition = alone.data.partition.model_copy(update={"clients": 1})
    data = alone.data.model_copy(update={"partition": partition})
    one, _ = finish(alone.model_copy(update={"data": data}), tmp_path / "one")
    all_, _ = finish(central(tmp_path, **options), tmp_path / "all")
    assert one["sha256"] == all_["sha256"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine": "central"}, "data.partition has no place"),
        ({"method": {"name": "moon"}, "model": {"projection": False}}, "does not suit MOON"),
        ({"method": {"name": "moon+fedavg"}}, "after it one of"),
        ({"method": {"name": "moon+fedbb", "options": {"mu": 1.0}}}, "options.mu is unknown"),
        ({"method": {"name": "moon+fedbb", "options": {"moon": 1.0}}}, "must be a table"),
        ({"method": {"name": "fedlc"}, "data": MOSAIC}, "FedLC is not defined for multilabel data"),
        ({"method": {"name": "fedprox", "options": {"mu": -1.0}}}, "mu must be"),
        ({"model": {"name": "resnet"}}, "model.name 'resnet' is unknown"),
    ],
)
def test_parts_that_do_not_suit_each_other_are_refused_at_once(tmp_path, changes, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        next(run(small_recipe(tmp_path, **changes), tmp_path / "run"))
    assert not (tmp_path / "run").exists()
