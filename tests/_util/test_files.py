"""Values for JSON: everything plain, nothing that is not a finite number."""

import errno
import json
import math
import os
import re
import shutil
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest

from fedbb._util.files import (
    check_space,
    closed_folder,
    explain_error,
    finite_or_none,
    remove_leftovers,
    replacing,
    why_unreadable,
    write_text,
    writing,
)
from fedbb.errors import RunError
from helpers.disk_limit import disk_limit
from helpers.rights import denied


class Color(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Record:
    name: str
    values: tuple[float, ...]


def test_what_is_no_finite_number_becomes_none_at_any_depth():
    value = {"a": [math.nan, 1.5, math.inf], "b": {"c": -math.inf}, "d": None}
    assert finite_or_none(value) == {"a": [None, 1.5, None], "b": {"c": None}, "d": None}


def test_records_arrays_and_names_become_plain():
    value = {1: Record("x", (0.5, math.nan)), "array": np.array([[1.0, np.nan]]), "e": Color.RED}
    plain = finite_or_none(value)
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain == {"1": {"name": "x", "values": [0.5, None]}, "array": [[1.0, None]], "e": "red"}


def test_whole_numbers_texts_and_truth_stay():
    assert finite_or_none([1, "nan", True, np.int64(3)]) == [1, "nan", True, 3]


def test_a_file_appears_whole_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_bytes_are_on_disk_before_the_rename_and_the_rename_before_the_end(tmp_path, monkeypatch):
    """A power cut at any moment leaves the old file or the new one, never an empty one."""
    events, sync, rename = [], os.fsync, os.replace

    def noting_sync(handle):
        facts = os.fstat(handle)
        is_folder = stat.S_ISDIR(facts.st_mode)
        same = is_folder and os.path.samestat(facts, tmp_path.stat())
        events.append("sync folder" if same else f"sync {facts.st_size} bytes")
        sync(handle)

    def noting_rename(source, target):
        events.append(f"rename to {Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noting_sync)
    monkeypatch.setattr(os, "replace", noting_rename)
    with replacing(tmp_path / "a.txt") as file:
        file.write(b"new")
    assert events == ["sync 3 bytes", "rename to a.txt", "sync folder"]


def test_an_error_leaves_the_old_file_and_no_leftover(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")

    def fail():
        with replacing(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_leftovers_of_a_crash_are_removed_and_nothing_else(tmp_path):
    for name in (".a.txt.1-ff.part", "b.part", "c.txt"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.part", "c.txt"]


def test_a_file_that_cannot_be_written_is_named_and_not_its_temporary_one(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError) as refused:
        write_text(tmp_path / "file" / "page.html", "text")
    where = tmp_path / "file" / "page.html"
    assert str(refused.value) in (
        f"{where} cannot be written: Not a directory",
        f"{where} cannot be written: File exists",
    )


def test_a_folder_that_cannot_be_copied_is_named_with_the_first_reason(tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "a").write_text("content")
    with disk_limit(), pytest.raises(RunError) as refused, writing(tmp_path / "to"):
        shutil.copytree(tmp_path / "from", tmp_path / "to")
    message = str(refused.value)
    assert message.startswith(f"{tmp_path / 'to'} cannot be written: [Errno {errno.EFBIG}]")


def test_a_disk_without_enough_space_is_named_with_what_is_left_and_leaves_nothing(tmp_path):
    check_space(tmp_path, 1)
    with pytest.raises(RunError) as refused:
        check_space(tmp_path, 10**18)
    assert re.fullmatch(
        rf"the disk of {tmp_path} is full: \d+\.\d MB are free, and at least 10{{12}}\.0 MB are "
        "needed",
        str(refused.value),
    )
    assert not list(tmp_path.iterdir())


def test_a_folder_that_takes_no_file_is_named_however_much_its_disk_holds(tmp_path):
    with disk_limit(), pytest.raises(RunError, match=f"{tmp_path} cannot be written: "):
        check_space(tmp_path, 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["absolute", "relative"])
def test_the_uppermost_folder_that_may_not_be_entered_is_named(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    top = tmp_path / "top" if kind == "absolute" else Path("top")
    path = top / "inner" / "file"
    path.parent.mkdir(parents=True)
    with denied(top / "inner", top), pytest.raises(PermissionError) as met:
        path.stat()
    with denied(top):
        assert closed_folder(path) == top
        told = "Permission denied; give your user the right to enter"
        assert explain_error(met.value) == f"{told} {top}"
        assert why_unreadable(met.value, top).endswith("the rights to read and to enter it")
        assert why_unreadable(met.value, path.parent).endswith(f"to read and to enter {top}")
        with (
            pytest.raises(RunError, match=f"{path} cannot be written: {told} {top}"),
            writing(path),
        ):
            path.write_text("")
    assert closed_folder(path) is None
    assert closed_folder(path / "missing" / "too") is None
    assert explain_error(met.value) == "Permission denied"
