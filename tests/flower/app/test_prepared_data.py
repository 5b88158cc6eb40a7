"""A site prepares its data once; later messages read it from disk, unless its source changed."""

import os
import stat

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra fedbb[flower]")

from fedbb.data.dataset import Examples
from fedbb.errors import DataError, RunError
from fedbb.flower.app import prepared_data
from fedbb.flower.app.prepared_data import FOLDER, KEPT, open_client_data
from fedbb.flower.app.settings import SiteSettings
from fedbb.recipes.reader import make_recipe
from helpers.flower_loopback import FIRST_NODE, flower_run, open_loopback, take_identity
from helpers.small_run import finish, small_values, write_npz


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    take_identity(monkeypatch)


@pytest.fixture
def recipe(tmp_path):
    values = small_values(write_npz(tmp_path / "small.npz"))
    values["data"] |= {"crop": 1, "padding": "reflect"}
    return make_recipe(values)


def site(tmp_path, client=1, **settings):
    return SiteSettings(client, state=tmp_path / "state", **settings)


def make_unreadable(path):
    """Replace a file by garbage of the same size and time, which no loader can read."""
    status = path.stat()
    path.write_bytes(b"\0" * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def same(ours, theirs):
    ours, theirs = (
        part.dataset.train.take(part.indices) if not isinstance(part, Examples) else part
        for part in (ours, theirs)
    )
    return (
        ours.inputs.dtype == theirs.inputs.dtype
        and np.array_equal(ours.inputs, theirs.inputs)
        and np.array_equal(ours.labels, theirs.labels)
    )


def folders(tmp_path, client=1):
    return sorted((tmp_path / "state" / FOLDER / f"client-{client}").iterdir())


def test_the_second_opening_does_not_read_the_source(recipe, tmp_path):
    first = open_client_data(recipe, site(tmp_path))
    make_unreadable(tmp_path / "small.npz")
    second = open_client_data(recipe, site(tmp_path))
    assert same(second.train, first.train)
    assert len(second.train) == 20
    assert second.info == first.info
    assert second.scored.keys() == first.scored.keys()
    assert all(same(second.scored[name], first.scored[name]) for name in first.scored)
    ours, theirs = (data.train.dataset for data in (second, first))
    for name in ("name", "task", "classes", "mean", "std", "augmentation", "notes", "channels"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_without_a_state_folder_every_opening_reads_the_source(recipe, tmp_path):
    open_client_data(recipe, SiteSettings(1))
    make_unreadable(tmp_path / "small.npz")
    with pytest.raises(DataError):
        open_client_data(recipe, SiteSettings(1))


@pytest.mark.parametrize("change", ["content", "time"])
def test_a_changed_source_is_read_again(recipe, tmp_path, change):
    first = open_client_data(recipe, site(tmp_path))
    path = tmp_path / "small.npz"
    if change == "content":
        write_npz(path, samples=120)
        again = open_client_data(recipe, site(tmp_path))
        assert len(again.train) == 30 != len(first.train)
    else:
        make_unreadable(path)
        os.utime(path, ns=(1, 1))
        with pytest.raises(DataError):
            open_client_data(recipe, site(tmp_path))


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"client": 2}, {}),
        ({"whole": True}, {}),
        ({}, {"seed": 1}),
        ({}, {"validation": 0.2}),
        ({}, {"train_images": 30}),
    ],
    ids=str,
)
def test_other_settings_have_other_data(recipe, tmp_path, settings, changes):
    first = open_client_data(recipe, site(tmp_path))
    seed = changes.pop("seed", recipe.seed)
    data = recipe.data.model_copy(update=changes)
    other = recipe.model_copy(update={"data": data, "seed": seed})
    kept = open_client_data(other, site(tmp_path, **settings))
    fresh = open_client_data(other, SiteSettings(**{"client": 1, **settings}))
    assert same(kept.train, fresh.train)
    assert not same(kept.train, first.train) or kept.scored.keys() != first.scored.keys()


def test_a_table_is_read_again_if_one_of_its_images_changes(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for number in range(8):
        image.new("L", (8, 8), number * 20).save(tmp_path / f"{number}.png")
    rows = "".join(f"{n}.png,{'ab'[n % 2]},{'test' if n > 5 else 'train'}\n" for n in range(8))
    (tmp_path / "table.csv").write_text("image,label,split\n" + rows)
    options = {"class_column": "label", "split_column": "split", "channels": 1}
    values = small_values(tmp_path / "table.csv")
    partition = {"kind": "even", "clients": 2}
    values["data"] |= {"name": "table", "options": options, "partition": partition}
    recipe, where = make_recipe(values), site(tmp_path, client=0)
    first = open_client_data(recipe, where)
    assert len(folders(tmp_path, 0)) == 1
    open_client_data(recipe, where)
    assert len(folders(tmp_path, 0)) == 1
    for number in range(6):
        image.new("L", (8, 8), 200).save(tmp_path / f"{number}.png")
    assert not same(open_client_data(recipe, where).train, first.train)


@pytest.mark.parametrize("file", ["facts.json", "train.images.npy", "test.labels.npy"])
@pytest.mark.parametrize("damage", ["cut", "empty", "gone", "other", "bit"])
def test_damaged_files_are_made_again(recipe, tmp_path, file, damage):
    first = open_client_data(recipe, site(tmp_path))
    (folder,) = folders(tmp_path)
    path = folder / file
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        flipped = content[:-1] + bytes([content[-1] ^ 1])
        damaged = {"cut": content[:-9], "empty": b"", "other": b"[1]", "bit": flipped}
        path.write_bytes(damaged[damage])
    assert same(open_client_data(recipe, site(tmp_path)).train, first.train)
    assert path.read_bytes() == content


def test_only_the_owner_can_read_what_is_kept(recipe, tmp_path):
    open_client_data(recipe, site(tmp_path))
    (folder,) = folders(tmp_path)
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_old_data_and_remains_of_killed_processes_are_removed(recipe, tmp_path):
    for seed in range(4):
        open_client_data(recipe.model_copy(update={"seed": seed}), site(tmp_path))
    cache = tmp_path / "state" / FOLDER / "client-1"
    assert len(folders(tmp_path)) == KEPT
    for name, age in ((".young", 0), (".old", prepared_data.ABANDONED_SECONDS + 60)):
        (cache / name).mkdir()
        moment = (cache / name).stat().st_mtime - age
        os.utime(cache / name, (moment, moment))
    open_client_data(recipe.model_copy(update={"seed": 9}), site(tmp_path))
    names = {path.name for path in folders(tmp_path)}
    assert ".young" in names
    assert ".old" not in names


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(recipe, tmp_path, caplog):
    (tmp_path / "state").write_text("a file")
    assert len(open_client_data(recipe, site(tmp_path)).train) == 20
    assert "could not be kept" in caplog.text


def test_an_error_is_not_kept(recipe, tmp_path):
    with pytest.raises(RunError, match="client 3, and the recipe divides"):
        open_client_data(recipe, site(tmp_path, client=3))
    assert not (tmp_path / "state").exists()


def test_a_run_reads_the_source_of_a_site_once_and_gives_the_same_model(recipe, tmp_path):
    expected, _ = finish(recipe, tmp_path / "inline")
    grid = open_loopback(recipe, state=str(tmp_path / "state"))
    seen = []

    def lose_source(message):
        seen.append(message)
        make_unreadable(tmp_path / "small.npz")
        return [message]

    # Client 0 is asked first in round 1, after all sites have reported their infos.
    grid.faults[0, 1] = lose_source
    summary, records = flower_run(recipe, tmp_path / "flower", grid, score="sites")
    assert len(seen) == 1
    assert summary["sha256"] == expected["sha256"]
    assert all(record["absent"] == [] for record in records)
    assert grid.nodes[FIRST_NODE].config["state"]
