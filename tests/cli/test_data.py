import json

import numpy as np

from fedbb.data.registry import CATALOGUE
from helpers.commands import fedbb
from helpers.small_run import write_npz


def test_list_names_every_data_set(monkeypatch):
    rows = json.loads(fedbb("data", "list", "--json", monkeypatch=monkeypatch).out)
    assert [row["name"] for row in rows] == list(CATALOGUE)
    assert rows[0]["here"] is True


def test_embedded_data_is_always_whole(monkeypatch):
    done = fedbb("data", "check", "digits", monkeypatch=monkeypatch)
    assert (done.code, done.out) == (0, "digits is whole\n")


def test_an_unknown_name_is_refused_with_the_nearest(monkeypatch):
    for verb in ("get", "check"):
        done = fedbb("data", verb, "cifar11", monkeypatch=monkeypatch)
        assert done.code == 2
        assert "did you mean cifar10?" in done.err


def test_a_data_set_that_is_not_here_is_said_to_be_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBB_DATA", str(tmp_path))
    done = fedbb("data", "check", "cifar10", monkeypatch=monkeypatch)
    assert done.code == 2
    assert "cifar10 is not in" in done.err


def test_a_corrupt_archive_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDBB_DATA", str(tmp_path / "cache"))
    archive = tmp_path / "cifar-10-python.tar.gz"
    archive.write_bytes(b"not the archive")
    done = fedbb("data", "get", "cifar10", "--from", archive, monkeypatch=monkeypatch)
    assert done.code == 2
    assert "cifar-10-python.tar.gz" in done.err


def test_ones_own_arrays_are_read_whole_and_described(tmp_path, monkeypatch):
    path = write_npz(tmp_path / "mine.npz")
    done = fedbb("data", "check", "npz", "--path", path, "--json", monkeypatch=monkeypatch)
    facts = json.loads(done.out)
    assert (facts["train"], facts["test"], facts["shape"]) == (60, 20, [1, 8, 8])
    assert "train: 60" in fedbb("data", "check", "npz", "--path", path, monkeypatch=monkeypatch).out


def test_images_that_are_not_numbers_are_refused(tmp_path, monkeypatch):
    images = np.zeros((20, 8, 8), dtype=np.float32)
    images[3, 2, 1] = np.nan
    np.savez(tmp_path / "nan.npz", images=images, labels=np.arange(20) % 2)
    done = fedbb("data", "check", "npz", "--path", tmp_path / "nan.npz", monkeypatch=monkeypatch)
    assert done.code == 2
    assert "image" in done.err
