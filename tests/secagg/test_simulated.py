import json

import numpy as np
import pytest
import torch

from fedbb.aggregation.merging import ClientBalanced
from fedbb.errors import PrivacyError, RecipeError, RunError
from fedbb.report.audit import audit_run
from fedbb.runs.checkpoint import load_checkpoint
from fedbb.runs.folder import FILES, RunFolder
from fedbb.runs.runner import run
from fedbb.secagg.audit import AUDIT
from helpers.cover import few
from helpers.small_run import finish, small_recipe, without_seconds, write_npz
from runs.test_crashes import check, drive

SKEW = {"kind": "label-skew", "clients": 5, "concentration": 0.7, "min_samples": 2}


def recipe_of(tmp_path, privacy="masked", partition=SKEW, **changes):
    path = tmp_path / "small.npz"
    if not path.exists():
        write_npz(path)
    data = {"name": "npz", "path": str(path), "partition": partition}
    changes = {"rounds": {"number": 2}, **changes}
    return small_recipe(tmp_path, privacy=privacy, data=data, **changes)


def final(path):
    return load_checkpoint(path / "final.safetensors").state


def test_a_private_run_ends_where_the_open_one_does(tmp_path):
    for privacy in ("none", "masked"):
        finish(recipe_of(tmp_path, privacy), tmp_path / privacy)
    ours, plain = final(tmp_path / "masked"), final(tmp_path / "none")
    for name, tensor in plain.params.items():
        torch.testing.assert_close(ours.params[name], tensor, rtol=1e-4, atol=1e-5)


def test_statistics_under_encryption_give_the_same_bits(tmp_path):
    pytest.importorskip("tenseal")
    kinds = ("masked", "bfv")
    ends = [finish(recipe_of(tmp_path, privacy), tmp_path / privacy)[0] for privacy in kinds]
    assert ends[0]["sha256"] == ends[1]["sha256"]
    audits = [RunFolder(tmp_path / privacy).read_json(AUDIT)["statistics"] for privacy in kinds]
    assert audits[0]["samples"] == audits[1]["samples"] == 60
    assert audits[0]["evenness"] == audits[1]["evenness"]


@pytest.mark.parametrize("method", ["fedbb", "moon+fedbb"])
def test_workers_change_no_bit(tmp_path, method):
    inline = recipe_of(tmp_path, method={"name": method})
    pool = recipe_of(tmp_path, method={"name": method}, engine="pool")
    one, _ = finish(inline, tmp_path / "inline")
    two, _ = finish(pool, tmp_path / "pool", workers=2)
    assert one["sha256"] == two["sha256"]


def test_a_private_folder_keeps_what_clients_have_apart(tmp_path):
    _, records = finish(recipe_of(tmp_path, method={"name": "moon+fedbb"}), tmp_path / "run")
    names = {entry.name for entry in (tmp_path / "run").iterdir()}
    private = {"audit.json", "roster.json", "aggregator.key", "parties"}
    assert names == {*FILES, *private} - {"memories"}
    assert len(list((tmp_path / "run/parties/memories").iterdir())) > 0
    for path in (tmp_path / "run/parties/client-00000.json", tmp_path / "run/aggregator.key"):
        assert path.stat().st_mode & 0o077 == 0
    folder = RunFolder(tmp_path / "run")
    assert folder.read_json("partition.json").keys() == {"format", "sha256"}
    federation = folder.read_json("federation.json")
    assert federation["clients"] == [{"client": client} for client in range(5)]
    assert federation["positives"] is None
    told = {"client": 0, "weight": None, "steps": None, "train_loss": None}
    assert records[0]["clients"][0] == told
    assert records[0]["work"]["busy_seconds"] == 0


@pytest.mark.parametrize("after", few([0, 1, 2], 1))
def test_a_private_run_left_after_any_round_goes_on_to_the_bit(tmp_path, after):
    recipe = recipe_of(
        tmp_path, method={"name": "moon+fedbb"}, rounds={"number": 3, "participation": 0.8}
    )
    whole, expected = finish(recipe, tmp_path / "whole")
    records = run(recipe, tmp_path / "part")
    for _ in range(after):
        next(records)
    records.close()
    resumed, _ = finish(recipe, tmp_path / "part", resume=True)
    assert resumed["sha256"] == whole["sha256"]
    assert without_seconds(RunFolder(tmp_path / "part").records()) == without_seconds(expected)
    audits = [RunFolder(tmp_path / name).read_json(AUDIT)["rounds"] for name in ("whole", "part")]
    assert audits[0] == audits[1]


def test_a_round_that_was_unmasked_but_not_saved_is_repeated_to_the_bit(tmp_path, monkeypatch):
    recipe = recipe_of(tmp_path, method={"name": "moon+fedbb"})
    whole, _ = finish(recipe, tmp_path / "whole")
    honest = RunFolder.commit

    def fail(self, record, checkpoint, **rest):
        if record["round"] == 2:
            raise RunError("the disk is full")
        honest(self, record, checkpoint, **rest)

    monkeypatch.setattr(RunFolder, "commit", fail)
    with pytest.raises(RunError, match="disk is full"):
        finish(recipe, tmp_path / "part")
    assert len(RunFolder(tmp_path / "part").read_json(AUDIT)["rounds"]) == 2
    monkeypatch.undo()
    resumed, _ = finish(recipe, tmp_path / "part", resume=True)
    assert resumed["sha256"] == whole["sha256"]
    assert len(RunFolder(tmp_path / "part").read_json(AUDIT)["rounds"]) == 2


@pytest.mark.slow
def test_a_private_run_killed_at_random_moments_ends_with_the_same_model(tmp_path, tally):
    sums = drive(tmp_path, recipe_of(tmp_path, rounds={"number": 6}), "kill", "5")
    check(tally, tmp_path, sums, 6)


@pytest.mark.slow
def test_a_crash_before_any_single_write_of_a_private_run_ends_with_the_same_model(tmp_path, tally):
    partition = {"kind": "even", "clients": 3}
    recipe = recipe_of(tmp_path, method={"name": "moon"}, partition=partition)
    sums = drive(tmp_path, recipe, "points")
    assert len(sums) > 20
    check(tally, tmp_path, sums, 2)


def test_changed_data_is_refused_by_the_digest_of_its_division(tmp_path):
    recipe = recipe_of(tmp_path)
    next(run(recipe, tmp_path / "run")).clear()
    write_npz(tmp_path / "small.npz", samples=100)
    with pytest.raises(RunError, match="another way"):
        next(run(recipe, tmp_path / "run", resume=True))


def test_privacy_cannot_be_changed_in_the_middle(tmp_path):
    next(run(recipe_of(tmp_path), tmp_path / "run")).clear()
    with pytest.raises(RunError, match="privacy"):
        next(run(recipe_of(tmp_path, "none"), tmp_path / "run", resume=True))


@pytest.mark.parametrize("name", ["client-00003.json", "../roster.json", "../aggregator.key"])
def test_a_damaged_file_of_keys_is_refused_by_name(tmp_path, name):
    recipe = recipe_of(tmp_path)
    next(run(recipe, tmp_path / "run")).clear()
    (tmp_path / "run/parties" / name).write_text("{}")
    with pytest.raises(
        (RunError, PrivacyError), match=r"client-00003.json|roster.json|aggregator.key"
    ):
        next(run(recipe, tmp_path / "run", resume=True))


def test_too_few_clients_are_told_once_the_data_is_divided(tmp_path):
    sites = {"kind": "column", "column": "site"}
    path = tmp_path / "sites.npz"
    rng = np.random.default_rng(0)
    split = np.where(np.arange(40) < 30, "train", "test")
    labels, site = rng.integers(0, 3, 40), np.where(np.arange(40) % 2, "a", "b")
    images = rng.integers(0, 255, (40, 8, 8), dtype=np.uint8)
    np.savez(path, images=images, labels=labels, split=split, site=site)
    data = {"name": "npz", "path": str(path), "partition": sites}
    recipe = small_recipe(tmp_path, privacy="masked", data=data)
    with pytest.raises(RecipeError, match="needs 3 clients in a round and 2 take part"):
        next(run(recipe, tmp_path / "run"))
    assert not RunFolder(tmp_path / "run").is_run()


def test_a_liar_in_a_run_declares_no_more_than_the_floor_allows(tmp_path, monkeypatch):
    monkeypatch.setattr(ClientBalanced, "measure", lambda self, counts: 1e-9)
    finish(recipe_of(tmp_path, rounds={"number": 1}), tmp_path / "run")
    audit = RunFolder(tmp_path / "run").read_json(AUDIT)
    assert audit["statistics"]["evenness"] == 5 * 1000.0
    kept = json.loads((tmp_path / "run/parties/client-00000.json").read_text())
    assert kept["declared"][1] == 1000 * 2**40


def test_a_sparse_graph_gives_the_model_of_a_complete_one(tmp_path):
    """22 clients are the fewest for whom a graph without colluders and dropouts is sparse."""
    rule = {"kind": "label-skew", "clients": 22, "concentration": 1.0, "min_samples": 1}
    summaries, rosters = [], []
    for graph in ("complete", "sparse"):
        recipe = small_recipe(
            tmp_path,
            privacy="masked",
            rounds={"number": 1},
            secure={"graph": graph, "colluders": 0.0, "dropouts": 0.0},
        )
        data = recipe.data.model_dump(mode="json") | {"partition": rule}
        recipe = recipe.model_validate(recipe.model_dump(mode="json") | {"data": data})
        summaries.append(finish(recipe, tmp_path / graph)[0])
        rosters.append(json.loads((tmp_path / graph / "roster.json").read_bytes())["roster"])
    assert summaries[0]["sha256"] == summaries[1]["sha256"]
    assert "neighbours" not in rosters[0]
    assert (rosters[1]["neighbours"], rosters[1]["neighbours_needed"]) == (6, 6)
    told = [" ".join(audit_run(tmp_path / graph).follows) for graph in ("complete", "sparse")]
    assert "Any 8 of the 22 clients that collude with a lying server can unmask" in told[0]
    assert "each client draws 6 neighbours. Up to 1 of the 22 clients that collude" in told[1]
    assert "6 that are chosen after the draw can unmask a client that drew them" in told[1]
