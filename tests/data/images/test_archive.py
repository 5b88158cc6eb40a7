import io
import struct
import tarfile
import zipfile

import pytest

from fedbb.data.images.archive import Folder, TarArchive, ZipArchive, open_archive, read_text
from fedbb.errors import DataError

FILES = {"set/b.txt": b"second", "set/a.txt": "früh".encode(), "set/deep/er/c.bin": b"\xff"}


def folder(path):
    for name, content in FILES.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def tar(path, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        link = tarfile.TarInfo("set/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
        for name, content in FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def zipped(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("set")
        for name, content in FILES.items():
            archive.writestr(name, content)
    return path


@pytest.fixture(params=["folder", "tar", "tar.gz", "zip"])
def bundle(request, tmp_path):
    made = {
        "folder": lambda: folder(tmp_path / "set of files"),
        "tar": lambda: tar(tmp_path / "a.tar", "w"),
        "tar.gz": lambda: tar(tmp_path / "a.tar.gz"),
        "zip": lambda: zipped(tmp_path / "a.zip"),
    }
    return open_archive(made[request.param]())


def test_files_are_named_and_read_alike_wherever_they_are(bundle) -> None:
    assert sorted(bundle.names()) == sorted(FILES)
    wanted = ["set/a.txt", "set/deep/er/c.bin", "set/b.txt"]
    found = dict(bundle.contents(wanted))
    read = {place: c if isinstance(c, bytes) else c.read_bytes() for place, c in found.items()}
    assert read == {place: FILES[name] for place, name in enumerate(wanted)}
    assert read_text(bundle, "set/a.txt") == "früh"


def test_a_missing_file_and_text_of_another_encoding_are_refused_by_name(bundle) -> None:
    with pytest.raises(DataError, match=r"set/none\.txt"):
        read_text(bundle, "set/none.txt")
    with pytest.raises(DataError, match=r"set/deep/er/c\.bin"):
        read_text(bundle, "set/deep/er/c.bin")


def test_a_link_in_an_archive_is_no_file(tmp_path) -> None:
    archive = open_archive(tar(tmp_path / "a.tar.gz"))
    assert "set/link" not in archive.names()
    with pytest.raises(DataError, match="holds no set/link"):
        read_text(archive, "set/link")


def test_the_stamps_change_with_a_file(bundle) -> None:
    before = list(bundle.stamps(["set/a.txt"]))
    assert before == list(bundle.stamps(["set/a.txt"]))
    assert before != list(bundle.stamps(["set/b.txt"]))
    changed = bundle.path / "set/a.txt" if bundle.path.is_dir() else bundle.path
    changed.write_bytes(changed.read_bytes() + b" ")
    assert before != list(bundle.stamps(["set/a.txt"]))


def test_the_kind_is_told_by_content_not_by_name(tmp_path) -> None:
    assert isinstance(open_archive(zipped(tmp_path / "a.tar.gz")), ZipArchive)
    assert isinstance(open_archive(tar(tmp_path / "a.zip")), TarArchive)
    assert isinstance(open_archive(tmp_path), Folder)


@pytest.mark.parametrize("make", [tar, zipped])
def test_a_damaged_archive_is_refused_with_its_name(tmp_path, make) -> None:
    path = make(tmp_path / "packed")
    whole = path.read_bytes()
    for length in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"packed|holds no"):
            read_text(open_archive(path), "set/deep/er/c.bin")
    with pytest.raises(DataError, match="nowhere"):
        open_archive(tmp_path / "nowhere")


def test_a_zip_file_with_a_nameless_entry_is_refused(tmp_path) -> None:
    """Python's reader of zip files looks at the last letter of each name."""
    path = zipped(tmp_path / "packed")
    content = path.read_bytes()
    directory = content.index(b"PK\x01\x02")
    # The length of the first name in the central directory.
    path.write_bytes(content[: directory + 28] + bytes(2) + content[directory + 30 :])
    with pytest.raises(DataError, match="packed"):
        open_archive(path).names()


def test_a_sound_zip_file_with_a_nameless_file_is_refused(tmp_path) -> None:
    path = tmp_path / "packed"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", b"content")
    content = path.read_bytes()
    directory, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    # Neither in the local header nor in the central directory is there a name.
    local = content[:26] + bytes(2) + content[28:30] + content[31:directory]
    central = content[directory : directory + 28] + bytes(2) + content[directory + 30 : end - 1]
    sizes = struct.pack("<II", len(central), len(local))
    path.write_bytes(local + central + content[end : end + 12] + sizes + content[end + 20 :])
    with pytest.raises(DataError, match="packed: a file in the archive has no name"):
        open_archive(path).names()
