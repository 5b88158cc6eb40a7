"""The archive of Tiny-ImageNet in the cache folder: got, kept as it is, and checked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from fedbb.data.download import Progress, RemoteFile, Supply, download
from fedbb.data.files import replacing, sha256_of
from fedbb.data.images.archive import open_bundle
from fedbb.data.sets.tiny_imagenet_layout import list_images
from fedbb.data.source import Source
from fedbb.errors import DataError

OFFICIAL = RemoteFile(
    "tiny-imagenet-200.zip",
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    248100043,
    "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
)

_ARCHIVE, _FACTS = "archive", "archive.json"


def stored_archive(source: Source) -> Path:
    """Return the archive in the cache folder, or DataError if there is none."""
    if not _held(source.folder):
        raise DataError(
            f"{source.name} is not in {source.folder}; get it with `fedbb data get {source.name}`, "
            "which also takes a local archive, or set the path to its folder"
        )
    return source.folder / _ARCHIVE


def _held(folder: Path) -> list[Path]:
    paths = [folder / _ARCHIVE, folder / _FACTS]
    return paths if all(path.is_file() for path in paths) else []


def _get(folder: Path, local: Path | None, progress: Progress | None) -> None:
    """Take over any archive in the layout; what is downloaded must be the official one."""
    if local is not None and local.is_dir():
        raise DataError(
            f"{local} is a folder, which need not be copied: name it as the path of the data. "
            "Only a .zip or .tar.gz is taken over"
        )
    path = local or download(OFFICIAL, folder, progress)
    list_images(open_bundle(path))
    (folder / _FACTS).unlink(missing_ok=True)
    _copy(path, folder / _ARCHIVE)
    facts = {"name": path.name, "sha256": sha256_of(folder / _ARCHIVE)}
    with replacing(folder / _FACTS) as file:
        file.write(json.dumps(facts).encode())
    if local is None:
        path.unlink()


def _copy(path: Path, target: Path) -> None:
    try:
        with path.open("rb") as file, replacing(target) as out:
            shutil.copyfileobj(file, out, 1 << 20)
    except OSError as error:
        raise DataError(f"cannot copy {path}: {error.strerror or error}") from error


def _check(folder: Path) -> None:
    try:
        expected = json.loads((folder / _FACTS).read_bytes())["sha256"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(f"{folder / _FACTS} is damaged: {error}; get the data again") from error
    found = sha256_of(folder / _ARCHIVE)
    if found != expected:
        raise DataError(
            f"{folder / _ARCHIVE} is damaged: its SHA-256 is {found}, expected {expected}"
        )


SUPPLY = Supply(_held, _get, _check)
