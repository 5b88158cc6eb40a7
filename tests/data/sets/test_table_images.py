import numpy as np
import pytest
from PIL import Image

from fedbb.data.csv_table import read_sheet
from fedbb.data.images.decode import Form
from fedbb.data.sets import table_images
from fedbb.data.sets.table_images import read_images, request_images
from fedbb.data.source import Source
from fedbb.errors import DataError


@pytest.fixture
def folder(tmp_path):
    """Three good images, one cut short, one of another size, and one missing."""
    for number in range(3):
        Image.fromarray(np.full((4, 5), number, np.uint8)).save(tmp_path / f"{number}.png")
    Image.fromarray(np.zeros((4, 6), np.uint8)).save(tmp_path / "wide.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "0.png").read_bytes()[:40])
    return tmp_path


def read(folder, names: list[str], policy="refuse", form=Form(1, None)):  # noqa: B008
    (folder / "labels.csv").write_text("\n".join(["image", *names]))
    sheet = read_sheet(folder / "labels.csv")
    request = request_images(sheet, "image", folder, form, policy)
    return read_images(request, Source("table", root=folder / "cache"))


def test_images_come_in_the_order_of_the_rows(folder) -> None:
    gallery = read(folder, ["2.png", "0.png", "1.png"])
    assert gallery.images[:, 0, 0, 0].tolist() == [2, 0, 1]
    assert gallery.rows.tolist() == [0, 1, 2]
    assert gallery.notes() == ()


@pytest.mark.parametrize("bad", ["cut.png", "wide.png", "missing.png"])
def test_an_image_that_cannot_be_used_is_refused_with_file_and_line(folder, bad) -> None:
    with pytest.raises(DataError, match=rf"labels\.csv: line 3, column image: image .*{bad}"):
        read(folder, ["0.png", bad, "1.png"])


def test_unusable_images_are_skipped_and_counted_if_so_wished(folder) -> None:
    names = ["cut.png", "1.png", "wide.png", "missing.png", "2.png"]
    gallery = read(folder, names, "skip")
    assert gallery.rows.tolist() == [1, 4]
    assert gallery.images[:, 0, 0, 0].tolist() == [1, 2]
    expected = "3 unreadable images skipped: cut.png, wide.png, missing.png"
    assert gallery.notes() == (expected,)


def test_with_a_size_all_images_fit(folder) -> None:
    gallery = read(folder, ["0.png", "wide.png"], form=Form(3, (8, 8)))
    assert gallery.images.shape == (2, 3, 8, 8)


def test_a_long_list_of_skipped_images_is_cut(folder) -> None:
    gallery = read(folder, ["0.png", *(f"lost {number}.png" for number in range(9))], "skip")
    note = (
        "9 unreadable images skipped: lost 0.png, lost 1.png, lost 2.png, lost 3.png, lost 4.png, …"
    )
    assert gallery.notes() == (note,)


def test_no_readable_image_at_all_is_refused(folder) -> None:
    with pytest.raises(DataError, match="none of its 2 images can be read"):
        read(folder, ["cut.png", "missing.png"], "skip")


def test_an_image_named_twice_is_refused_with_both_lines(folder) -> None:
    with pytest.raises(DataError, match=r"line 4, column image: 0\.png stands on line 2 too"):
        read(folder, ["0.png", "1.png", "0.png"])


def test_a_blank_name_is_refused_with_its_line(folder) -> None:
    with pytest.raises(DataError, match="line 3, column image: there is no file name"):
        read(folder, ["0.png", '" "'])


def test_many_images_are_kept_decoded_and_come_out_the_same(folder, monkeypatch) -> None:
    names = ["2.png", "cut.png", "0.png", "missing.png", "1.png"]
    plain = read(folder, names, "skip")
    monkeypatch.setattr(table_images, "MANY", 5)
    for _ in range(2):
        kept = read(folder, names, "skip")
        assert isinstance(kept.images, np.memmap)
        assert np.array_equal(kept.images, plain.images)
        assert kept.rows.tolist() == plain.rows.tolist()
        assert kept.notes() == plain.notes()
    assert len(list((folder / "cache" / "table" / "decoded").glob("[!.]*"))) == 1
    with pytest.raises(DataError, match=r"labels\.csv: line 3, column image: image .*cut\.png"):
        read(folder, names)
