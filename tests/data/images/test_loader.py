import json
import os
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from fedbb.data.images.archive import Folder, open_archive
from fedbb.data.images.decode import ImageFormat, Request, decode_all
from fedbb.data.images.loader import decode_once, fingerprint
from fedbb.data.transforms import channel_statistics
from fedbb.errors import DataError
from helpers import image_files

FORMAT = ImageFormat(3, None)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "images"
    made.mkdir()
    rng = np.random.default_rng(0)
    for number in range(9):
        pixels = rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(made / f"{number}.png")
    return made


def request(folder, numbers=range(9), **fields) -> Request:
    names = tuple(f"{number}.png" for number in numbers)
    return image_files.request(Folder(folder), names, fields.pop("wanted", FORMAT), **fields)


def kept_in(cache) -> list:
    """Return what is in a cache but for the files that processes wait on each other by."""
    return [path for path in cache.iterdir() if path.suffix != ".lock"]


def untouchable(done: int, whole: int) -> None:
    raise AssertionError("decoded again")


def test_images_are_decoded_once_and_then_mapped_from_disk(folder, tmp_path) -> None:
    plain = decode_all(request(folder))
    first = decode_once(request(folder), tmp_path / "cache")
    second = decode_once(request(folder, progress=untouchable), tmp_path / "cache")
    for made in (first, second):
        assert isinstance(made.images, np.memmap)
        assert np.array_equal(made.images, plain.images)
        assert made.rows.tolist() == plain.rows.tolist()
        assert (made.mean, made.std) == channel_statistics(plain.images)
    (kept,) = kept_in(tmp_path / "cache")
    assert sorted(path.name for path in kept.iterdir()) == ["facts.json", "images.npy"]


@pytest.mark.parametrize("bad", [(0,), (8,), (3, 4, 8), (0, 7, 8)])
def test_skipped_images_leave_no_gap(folder, tmp_path, bad) -> None:
    for number in bad:
        (folder / f"{number}.png").write_bytes(b"no image")
    plain = decode_all(request(folder, unreadable="skip"))
    for _ in range(2):
        made = decode_once(request(folder, unreadable="skip"), tmp_path / "cache")
        assert np.array_equal(made.images, plain.images)
        assert made.rows.tolist() == [number for number in range(9) if number not in bad]
        assert made.skipped == tuple(f"{number}.png" for number in bad)
        assert made.notes() == plain.notes()
        assert (made.mean, made.std) == channel_statistics(plain.images)


def test_a_refused_image_leaves_nothing_behind(folder, tmp_path) -> None:
    (folder / "8.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"8\.png"):
        decode_once(request(folder), tmp_path / "cache")
    assert kept_in(tmp_path / "cache") == []


def test_whatever_changes_the_result_changes_the_key(folder) -> None:
    keys = [
        fingerprint(request(folder)),
        fingerprint(request(folder, range(8))),
        fingerprint(request(folder, reversed(range(9)))),
        fingerprint(request(folder, wanted=ImageFormat(1, None))),
        fingerprint(request(folder, wanted=ImageFormat(3, (2, 2)))),
        fingerprint(request(folder, wanted=ImageFormat(3, (2, 2), "box"))),
        fingerprint(request(folder, unreadable="skip")),
    ]
    os.utime(folder / "3.png", ns=(1, 1))
    keys.append(fingerprint(request(folder)))
    (folder / "3.png").unlink()
    keys.append(fingerprint(request(folder)))
    assert len(set(keys)) == len(keys)
    assert fingerprint(request(folder, progress=untouchable)) == keys[-1]


@pytest.mark.parametrize("name", ["images.npy", "facts.json"])
def test_a_damaged_cache_is_refused_with_its_place(folder, tmp_path, name) -> None:
    decode_once(request(folder), tmp_path / "cache")
    (kept,) = kept_in(tmp_path / "cache")
    whole = (kept / name).read_bytes()
    for length in (0, 10, len(whole) - 1):
        (kept / name).write_bytes(whole[:length])
        with pytest.raises(DataError, match=f"{kept.name}.* is damaged"):
            decode_once(request(folder), tmp_path / "cache")


def test_facts_that_do_not_fit_the_images_are_refused(folder, tmp_path) -> None:
    decode_once(request(folder), tmp_path / "cache")
    (kept,) = kept_in(tmp_path / "cache")
    facts = json.loads((kept / "facts.json").read_text())
    (kept / "facts.json").write_text(json.dumps(facts | {"skipped": [0]}))
    with pytest.raises(DataError, match="9 images for 8 rows"):
        decode_once(request(folder), tmp_path / "cache")


def test_of_two_that_ask_at_once_one_decodes_and_the_other_waits(folder, tmp_path) -> None:
    told, begun = [], threading.Event()

    def slowly(done: int, whole: int) -> None:
        told.append((done, whole))
        begun.set()
        time.sleep(0.3)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(decode_once, request(folder, progress=slowly), tmp_path / "cache")
        assert begun.wait(10)
        second = pool.submit(decode_once, request(folder, progress=untouchable), tmp_path / "cache")
        assert np.array_equal(first.result().images, second.result().images)
    assert told == [(9, 9)]


def test_what_a_killed_process_left_is_cleared_away(folder, tmp_path) -> None:
    cache = tmp_path / "cache"
    left = cache / f".{fingerprint(request(folder))}.part"
    left.mkdir(parents=True)
    (left / "whole.npy").write_bytes(b"half")
    assert len(decode_once(request(folder), cache).images) == 9
    (kept,) = kept_in(cache)
    assert sorted(path.name for path in kept.iterdir()) == ["facts.json", "images.npy"]


def test_skipped_images_of_an_archive_are_named_in_the_order_asked_for(folder, tmp_path) -> None:
    names = tuple(f"{number}.png" for number in range(9))
    for number in (2, 5):
        (folder / f"{number}.png").write_bytes(b"no image")
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for name in reversed(names):
            archive.add(folder / name, name)
    asked = image_files.request(open_archive(tmp_path / "all.tar"), names, FORMAT, "skip")
    made = decode_once(asked, tmp_path / "cache")
    assert made.skipped == decode_all(asked).skipped == ("2.png", "5.png")
    assert np.array_equal(made.images, decode_all(asked).images)


def test_a_cache_that_cannot_be_written_is_told(folder, tmp_path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match="cannot write"):
        decode_once(request(folder), tmp_path / "file" / "cache")
