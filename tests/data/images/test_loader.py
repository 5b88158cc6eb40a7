import io
import tarfile
import threading
import warnings

import numpy as np
import pytest
from PIL import Image

from fedbb.data.images.archive import Folder, open_bundle
from fedbb.data.images.decode import Form
from fedbb.data.images.loader import Request, read_gallery
from fedbb.errors import DataError
from helpers.picture_files import read_picture

NUMBER = 150


@pytest.fixture
def folder(tmp_path):
    """Images whose pixels all hold their number."""
    for number in range(NUMBER):
        Image.fromarray(np.full((3, 4), number, np.uint8)).save(tmp_path / f"{number}.png")
    return tmp_path


def names(numbers) -> tuple[str, ...]:
    return tuple(f"{number}.png" for number in numbers)


def test_many_images_come_in_the_order_of_their_names(folder) -> None:
    order = np.random.default_rng(0).permutation(NUMBER)
    gallery = read_gallery(Request(Folder(folder), names(order), Form(1, None)))
    assert gallery.images[:, 0, 0, 0].tolist() == order.tolist()
    assert gallery.rows.tolist() == list(range(NUMBER))


def test_an_archive_gives_what_its_folder_gives(folder) -> None:
    order = np.random.default_rng(1).permutation(NUMBER)
    with tarfile.open(folder / "all.tar.gz", "w:gz") as archive:
        for number in reversed(range(NUMBER)):
            archive.add(folder / f"{number}.png", f"{number}.png")
    made = [
        read_gallery(Request(bundle, names(order), Form(3, (2, 2), "box")))
        for bundle in (Folder(folder), open_bundle(folder / "all.tar.gz"))
    ]
    assert np.array_equal(made[0].images, made[1].images)
    assert made[0].images.shape == (NUMBER, 3, 2, 2)


def test_what_an_archive_lacks_or_holds_damaged_is_refused_or_skipped(tmp_path) -> None:
    good = io.BytesIO()
    Image.fromarray(np.zeros((3, 4), np.uint8)).save(good, "PNG")
    members = {"good.png": good.getvalue(), "bad.png": b"no image", "cut.png": good.getvalue()[:40]}
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    bundle = open_bundle(tmp_path / "a.tar")
    for bad, reason in (("bad.png", "it is no image"), ("lost.png", "not in"), ("cut.png", "")):
        with pytest.raises(DataError, match=rf"image .*{bad} .*{reason}"):
            read_gallery(Request(bundle, ("good.png", bad), Form(1, None)))
    wanted = ("lost.png", "cut.png", "good.png", "bad.png")
    gallery = read_gallery(Request(bundle, wanted, Form(1, None), "skip"))
    assert gallery.rows.tolist() == [2]
    assert gallery.skipped == ("lost.png", "cut.png", "bad.png")


def test_progress_rises_to_the_number_of_images(folder) -> None:
    told = []
    request = Request(
        Folder(folder),
        names(range(NUMBER)),
        Form(1, None),
        progress=lambda *figures: told.append(figures),
    )
    read_gallery(request)
    assert [whole for _, whole in told] == [NUMBER] * len(told)
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1] == (NUMBER, NUMBER)


def test_decoding_leaves_no_thread_and_no_filter_of_warnings_behind(folder) -> None:
    filters, threads = list(warnings.filters), threading.active_count()
    (folder / "bad.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"bad\.png"):
        read_gallery(Request(Folder(folder), (*names(range(99)), "bad.png"), Form(1, None)))
    assert warnings.filters == filters
    assert threading.active_count() == threads


def test_box_scaling_is_the_mean_of_the_pixels_covered(tmp_path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    made = read_picture(tmp_path / "a.png", Form(3, (4, 4), "box"))
    means = pixels.reshape(4, 2, 4, 2, 3).astype(float).mean(axis=(1, 3)).transpose(2, 0, 1)
    # Pillow scales rows and columns in turn and rounds after each.
    assert np.abs(made - means).max() <= 1
    assert np.abs(made - means).mean() < 0.5
