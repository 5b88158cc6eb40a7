import io
import re
import struct
import zipfile
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import pytest

import fedbb
from fedbb.data import array_files, mapped
from fedbb.data.array_files import find_arrays, read_npz
from fedbb.data.mapped import MappedRows
from fedbb.data.registry import load_dataset
from fedbb.errors import DataError
from helpers.commands import fedbb as call

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 16, 15, 3), dtype=np.uint8)
LABELS = np.arange(40) % 4


@pytest.fixture
def small_memory(monkeypatch, tmp_path):
    """Every array is larger than memory should hold, and read in pieces of a few rows."""
    monkeypatch.setattr(array_files, "LARGE", 1000)
    monkeypatch.setattr(mapped, "LARGE", 1000)
    monkeypatch.setattr(array_files, "_PIECE", 300)
    monkeypatch.setenv("FEDBB_DATA", str(tmp_path / "cache"))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_large_array_is_the_same_from_the_cache(tmp_path, request, save) -> None:
    save(tmp_path / "mine.npz", images=IMAGES, labels=LABELS, site=LABELS % 2)
    options = {"size": 4}
    plain = load_dataset("npz", path=tmp_path / "mine.npz", options=options)
    request.getfixturevalue("small_memory")
    found = load_dataset("npz", path=tmp_path / "mine.npz", options=options)
    assert isinstance(found.train.inputs, MappedRows)
    assert np.array_equal(found.train.inputs, plain.train.inputs)
    assert np.array_equal(found.test.inputs, plain.test.inputs)
    assert (found.mean, found.std) == (plain.mean, plain.std)
    folders = list((tmp_path / "cache" / "npz" / "decoded").glob("*/inputs.npy"))
    assert len(folders) == 1
    load_dataset("npz", path=tmp_path / "mine.npz", options=options)
    assert list((tmp_path / "cache" / "npz" / "decoded").glob("*/inputs.npy")) == folders


def test_npy_files_are_mapped_where_they_lie(tmp_path, small_memory) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    np.save(folder / "images.npy", IMAGES.transpose(0, 3, 1, 2).copy())
    np.save(folder / "labels.npy", LABELS)
    data = load_dataset("npz", path=folder)
    assert isinstance(data.train.inputs, MappedRows)
    assert data.train.inputs.base.filename == folder / "images.npy"
    assert not (tmp_path / "cache").exists()


def test_a_run_on_mapped_rows_has_the_bits_of_one_in_memory(tmp_path, monkeypatch) -> None:
    np.save(tmp_path / "images.npy", IMAGES.transpose(0, 3, 1, 2).copy())
    monkeypatch.setattr(mapped, "LARGE", 1000)
    on_disk = np.load(tmp_path / "images.npy", mmap_mode="r")
    results = []
    for inputs, workers in ((np.array(on_disk), 0), (on_disk, 0), (on_disk, 2)):
        data = fedbb.Dataset.from_arrays(inputs, LABELS, test_share=0.2, normalize=True)
        assert isinstance(data.train.inputs, MappedRows) == isinstance(inputs, np.memmap)
        clients = fedbb.partition.iid(data, 2)
        results.append(
            fedbb.simulate(data, clients, model="linear", rounds=1, validation=0.2, workers=workers)
        )
    first, *others = (
        (result.final, result.model.state_dict(), result.history[0].scores) for result in results
    )
    for other in others:
        assert other[0] == first[0]
        assert all((first[1][name] == other[1][name]).all() for name in first[1])
        assert other[2] == first[2]


def test_pages_that_were_read_do_not_stay_in_the_process(monkeypatch) -> None:
    monkeypatch.setattr(mapped, "LARGE", 1000)
    with NamedTemporaryFile(suffix=".npy") as file:  # on disk, where tmp_path may not be
        np.save(file, np.zeros((2000, 5000), np.uint8))
        file.flush()
        on_disk = np.load(file.name, mmap_mode="r")
    rows = mapped.stay_on_disk(on_disk)
    resident_before = resident()
    for start in range(0, 2000, 100):
        assert rows[start : start + 100].shape == (100, 5000)
    assert resident() - resident_before < 3e6
    assert np.asarray(on_disk).sum() == 0
    assert resident() - resident_before > 8e6


def resident() -> int:
    """Bytes of mapped files that count as memory of this process."""
    text = Path("/proc/self/status").read_text("utf-8")
    (found,) = re.findall(r"RssFile:\s+(\d+) kB", text)
    return 1000 * int(found)


def test_inputs_of_any_rank_keep_their_shape_and_type(tmp_path) -> None:
    shapes = {"vector": (7,), "signal": (2, 9), "volume": (1, 3, 4, 5), "deep": (2, 2, 2, 2, 2)}
    for name, shape in shapes.items():
        path = tmp_path / f"{name}.npz"
        np.savez(path, inputs=np.ones((10, *shape)), labels=np.arange(10) % 2)
        data = load_dataset("npz", path=path)
        assert data.input_shape == shape
        assert data.train.inputs.dtype == np.float32
    np.savez(path, inputs=np.arange(30).reshape(10, 3), labels=np.arange(10) % 2)
    tokens = load_dataset("npz", path=path)
    assert tokens.train.inputs.dtype == np.int64
    assert tokens.mean == ()
    np.savez(path, inputs=np.ones((10, 9, 2)), labels=np.arange(10) % 2)
    moved = load_dataset("npz", path=path, options={"layout": "channels-last"})
    assert moved.input_shape == (2, 9)


def test_a_validation_part_is_read_by_its_prefix(tmp_path) -> None:
    arrays = {
        "images": IMAGES,
        "labels": LABELS,
        "val_images": IMAGES[:3],
        "val_labels": LABELS[:3],
    }
    np.savez(tmp_path / "mine.npz", **arrays, site=LABELS % 2, val_site=LABELS[:3])
    data = load_dataset("npz", path=tmp_path / "mine.npz")
    assert len(data.validation) == 3
    assert list(data.validation.columns) == list(data.train.columns) == ["site"]


def header(shape, dtype="|u1"):
    stream = io.BytesIO()
    facts = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, facts)
    return stream.getvalue()


def write_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def test_malformed_arrays_are_one_message_and_leave_nothing(
    tmp_path, monkeypatch, small_memory
) -> None:
    path = tmp_path / "mine.npz"
    good = {"images.npy": npy(IMAGES), "labels.npy": npy(LABELS)}
    bomb = np.zeros((4000, 10, 10), np.uint8)
    cases = {
        "as a zip bomb does": {**good, "images.npy": npy(bomb)},
        "header promises 1,000,000,000,000": {**good, "images.npy": header((10**9, 1000)) + b"1"},
        "holds Python objects": {**good, "labels.npy": npy(np.array([{}] * 40))},
        "no array 'labels'": {"images.npy": good["images.npy"]},
        "input 3 holds NaN": {**good, "images.npy": npy(_with_nan())},
        "has shape": {**good, "images.npy": npy(IMAGES[0, 0, 0])},
    }
    for message, members in cases.items():
        write_zip(path, members)
        result = call("data", "check", "npz", "--path", path, monkeypatch=monkeypatch)
        assert result.code == 2, message
        assert message in " ".join(result.err.split())
        assert list(tmp_path.glob("cache/npz/decoded/.*/*")) == []


def _with_nan():
    images = np.zeros((40, 3, 4, 4), np.float32)
    images[3, 0, 0, 0] = np.nan
    images += np.random.default_rng(0).random(images.shape, dtype=np.float32)
    return images


def test_a_damaged_array_is_found_while_it_is_unpacked(tmp_path, small_memory) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, images=IMAGES, labels=LABELS)
    content = bytearray(path.read_bytes())
    content[content.index(IMAGES.tobytes()[:50]) + 1000] ^= 255
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read .*mine\.npz as \.npz: Bad CRC"):
        load_dataset("npz", path=path)
    assert list(tmp_path.glob("cache/npz/decoded/*/*")) == []


def test_only_named_arrays_are_read(tmp_path) -> None:
    np.savez(tmp_path / "mine.npz", a=np.ones(3), b=np.zeros(2))
    assert set(read_npz(tmp_path / "mine.npz", ("a",), ())) == {"a"}
    assert set(find_arrays(tmp_path / "mine.npz")) == {"a", "b"}
    with pytest.raises(DataError, match=r"holds no \.npy files"):
        find_arrays(tmp_path)
    (tmp_path / "x.npy").write_bytes(struct.pack("<i", 7))
    with pytest.raises(DataError, match=r"cannot read .*x\.npy as \.npy"):
        find_arrays(tmp_path)
