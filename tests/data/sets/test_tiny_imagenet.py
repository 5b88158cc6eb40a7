import shutil
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from fedbb.data.download import sha256_of
from fedbb.data.registry import cache_status, check_files, get_dataset, load_dataset
from fedbb.data.sets import tiny_imagenet
from fedbb.errors import DataError
from helpers.small_run import one_round

WNIDS = ["n03", "n01", "n02"]


def pixels(*key: int) -> np.ndarray:
    return np.random.default_rng(key).integers(0, 256, (8, 8, 3), dtype=np.uint8)


def save(path, image: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # PNG under the name of JPEG, so that pixels can be compared; the content decides, not the name.
    Image.fromarray(image).save(path, "PNG")


@pytest.fixture
def folder(tmp_path):
    """Three classes of four training and two test images, in the layout of the original."""
    root = tmp_path / "tiny-imagenet-3"
    for place, wnid in enumerate(WNIDS):
        for number in range(4):
            save(root / "train" / wnid / "images" / f"{wnid}_{number}.JPEG", pixels(place, number))
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("n_0.JPEG\t0\t0\t62\t62\n")
    lines = []
    for number in range(6):
        save(root / "val" / "images" / f"val_{number}.JPEG", pixels(9, number))
        lines.append(f"val_{number}.JPEG\t{WNIDS[number % 3]}\t0\t0\t62\t62")
    (root / "val" / "val_annotations.txt").write_text("\n".join([*lines, "val_9.JPEG\tn99\t0", ""]))
    save(root / "test" / "images" / "test_0.JPEG", pixels(0))
    (root / "train" / "n01" / "images" / ".DS_Store").write_bytes(b"of some file manager")
    (root / "wnids.txt").write_text("\n".join(WNIDS))
    (root / "words.txt").write_text(
        "n00\tentity\nn01\tgoldfish, Carassius auratus\nn02\tcrane\nn03\tcrane, derrick\n"
    )
    return root


def pack(folder, name: str):
    path = folder.parent / name
    if name.endswith("zip"):
        with zipfile.ZipFile(path, "w") as archive:
            for file in sorted(folder.rglob("*"), reverse=True):
                archive.write(file, f"{folder.name}/{file.relative_to(folder)}")
    else:
        with tarfile.open(path, "w:gz") as archive:
            archive.add(folder, folder.name)
    return path


def test_classes_are_in_order_and_val_is_the_test_part(folder, tmp_path) -> None:
    dataset = load_dataset("tiny-imagenet", root=tmp_path / "cache", path=folder)
    # n02 and n03 share their first word, which then names neither.
    assert dataset.classes == ("goldfish", "n02", "n03")
    assert dataset.train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert dataset.test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert np.array_equal(dataset.train.inputs[0], pixels(1, 0).transpose(2, 0, 1))
    assert np.array_equal(dataset.train.inputs[11], pixels(0, 3).transpose(2, 0, 1))
    assert np.array_equal(dataset.test.inputs[1], pixels(9, 4).transpose(2, 0, 1))
    assert dataset.train.inputs.shape == (12, 3, 8, 8)
    assert isinstance(dataset.train.inputs, np.memmap)


@pytest.mark.parametrize("name", ["tiny.zip", "tiny.tar.gz"])
def test_an_archive_gives_what_its_folder_gives(folder, tmp_path, name) -> None:
    root = tmp_path / "cache"
    plain = load_dataset("tiny-imagenet", root=root, path=folder)
    archive = pack(folder, name)
    shutil.rmtree(folder)
    packed = load_dataset("tiny-imagenet", root=root, path=archive)
    found = get_dataset("tiny-imagenet", root, local=archive)
    assert check_files("tiny-imagenet", root) == found == cache_status("tiny-imagenet", root)
    archive.unlink()
    kept = load_dataset("tiny-imagenet", root=root)
    for dataset in (packed, kept):
        assert dataset.classes == plain.classes
        assert (dataset.mean, dataset.std) == (plain.mean, plain.std)
        for part in ("train", "test"):
            mine, its = getattr(dataset, part), getattr(plain, part)
            assert np.array_equal(mine.inputs, its.inputs)
            assert mine.labels.tolist() == its.labels.tolist()


def test_images_can_be_made_smaller_by_the_mean_of_pixels(folder, tmp_path) -> None:
    made = load_dataset("tiny-imagenet", root=tmp_path, path=folder, options={"size": 4})
    means = pixels(1, 0).reshape(4, 2, 4, 2, 3).mean(axis=(1, 3)).transpose(2, 0, 1)
    assert made.train.inputs.shape == (12, 3, 4, 4)
    assert np.abs(made.train.inputs[0] - means).max() <= 1


def test_grey_images_get_three_channels(folder, tmp_path) -> None:
    save(folder / "train" / "n01" / "images" / "n01_0.JPEG", pixels(5)[:, :, 0])
    made = load_dataset("tiny-imagenet", root=tmp_path, path=folder)
    assert np.array_equal(made.train.inputs[0], np.stack([pixels(5)[:, :, 0]] * 3))


def test_class_numbers_serve_as_names_where_there_are_no_words(folder, tmp_path) -> None:
    (folder / "words.txt").unlink()
    made = load_dataset("tiny-imagenet", root=tmp_path, path=folder)
    assert made.classes == ("n01", "n02", "n03")


def test_damaged_and_missing_images_are_refused_or_skipped(folder, tmp_path) -> None:
    (folder / "train" / "n02" / "images" / "n02_1.JPEG").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"n02_1\.JPEG cannot be read"):
        load_dataset("tiny-imagenet", root=tmp_path, path=folder)
    (folder / "val" / "images" / "val_0.JPEG").unlink()
    made = load_dataset("tiny-imagenet", root=tmp_path, path=folder, options={"unreadable": "skip"})
    assert (len(made.train), len(made.test)) == (11, 5)
    assert made.train.labels.tolist() == [0] * 4 + [1] * 3 + [2] * 4
    assert [note.split(":")[0] for note in made.notes] == ["1 unreadable images skipped"] * 2


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: (root / "wnids.txt").unlink(), "not in the layout of Tiny-ImageNet"),
        (lambda root: (root / "wnids.txt").write_text("\n"), "names no class"),
        (lambda root: (root / "wnids.txt").write_text("n01 n04"), "no training images of n04"),
        (lambda root: (root / "val/val_annotations.txt").unlink(), "val_annotations"),
        (lambda root: (root / "val/val_annotations.txt").write_text("\nval_0"), "line 2"),
        (lambda root: (root / "val/val_annotations.txt").write_text(""), "no test images"),
    ],
)
def test_a_folder_of_another_layout_is_refused(folder, tmp_path, spoil, message) -> None:
    spoil(folder)
    with pytest.raises(DataError, match=message):
        load_dataset("tiny-imagenet", root=tmp_path / "cache", path=folder)


def test_only_an_archive_in_the_layout_is_taken_over(folder, tmp_path) -> None:
    with pytest.raises(DataError, match="is a folder, which need not be copied"):
        get_dataset("tiny-imagenet", tmp_path, local=folder)
    (folder / "wnids.txt").unlink()
    with pytest.raises(DataError, match="not in the layout"):
        get_dataset("tiny-imagenet", tmp_path, local=pack(folder, "a.zip"))
    assert not cache_status("tiny-imagenet", tmp_path).present
    with pytest.raises(DataError, match="fedbb data get tiny-imagenet"):
        load_dataset("tiny-imagenet", root=tmp_path)
    with pytest.raises(DataError, match="size is 0"):
        load_dataset("tiny-imagenet", root=tmp_path, path=folder, options={"size": 0})


def test_a_download_must_be_the_official_archive(folder, tmp_path, monkeypatch) -> None:
    archive = pack(folder, "tiny-imagenet-200.zip")
    remote = replace(tiny_imagenet.OFFICIAL, url=archive.as_uri())
    monkeypatch.setattr(tiny_imagenet, "OFFICIAL", remote)
    with pytest.raises(DataError, match="Nothing was kept"):
        get_dataset("tiny-imagenet", tmp_path / "cache")
    known = replace(remote, size=archive.stat().st_size, sha256=sha256_of(archive))
    monkeypatch.setattr(tiny_imagenet, "OFFICIAL", known)
    assert get_dataset("tiny-imagenet", tmp_path / "cache").present
    stored = tmp_path / "cache" / "tiny-imagenet"
    assert sorted(path.name for path in stored.iterdir()) == ["archive", "archive.json"]
    (stored / "archive").write_bytes(archive.read_bytes() + b" ")
    with pytest.raises(DataError, match="is damaged: its SHA-256"):
        check_files("tiny-imagenet", tmp_path / "cache")


def test_a_recipe_of_the_folder_runs_for_a_round(folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FEDBB_DATA", str(tmp_path / "cache"))
    record = one_round(tmp_path, name="tiny-imagenet", path=str(folder), options={"size": 8})
    assert 0 <= record["scores"]["test"]["macro"]["balanced_accuracy"] <= 1
