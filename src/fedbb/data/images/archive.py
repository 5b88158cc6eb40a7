"""Files of a folder, a tar or a zip archive by relative path; nothing is unpacked to disk."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from fedbb._util.files import unreadable_data
from fedbb.data.packed import refuse_bomb
from fedbb.errors import DataError

_FAULTS = (
    OSError,
    EOFError,
    LookupError,  # fields of a zip file that end too early
    RuntimeError,  # an encrypted zip file, or one packed in a way unknown here
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


class Archive(Protocol):
    """A folder or an archive file, and the files in it."""

    @property
    def path(self) -> Path:
        """The folder or archive."""
        ...

    def names(self) -> list[str]:
        """Return the path of every file within, parts joined by slashes."""
        ...

    def contents(self, names: Sequence[str]) -> Iterator[tuple[int, Path | bytes]]:
        """Yield (index in `names`, the file or its content), in the order of storage.

        An archive leaves out names that it does not hold; a folder yields any path.
        """
        ...

    def stamps(self, names: Sequence[str]) -> Iterator[str]:
        """Yield texts that change when these files do; they make up the cache key."""
        ...


def open_archive(path: Path) -> Archive:
    """Return a folder, .zip or .tar (packed or not) as an archive; DataError if it is neither."""
    if path.is_dir():
        return Folder(path)
    with _reading(path):
        with path.open("rb"):
            pass
        if zipfile.is_zipfile(path):
            return ZipArchive(path)
        if tarfile.is_tarfile(path):
            return TarArchive(path)
    raise DataError(f"{path} is neither a folder nor a .zip, .tar or .tar.gz archive")


def read_text(archive: Archive, name: str) -> str:
    """Return a text file of an archive; DataError if it is missing or not in UTF-8."""
    try:
        for _, content in archive.contents([name]):
            whole = content.read_bytes() if isinstance(content, Path) else content
            return whole.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {name} of {archive.path}: {error}") from error
    raise DataError(f"{archive.path} holds no {name}")


@dataclass(frozen=True)
class Folder:
    """Files in a folder and the folders below it."""

    path: Path

    def names(self) -> list[str]:
        """Return the path of every file below the folder, in alphabetical order."""
        found = (path for path in self.path.rglob("*") if path.is_file())
        return sorted(path.relative_to(self.path).as_posix() for path in found)

    def contents(self, names: Sequence[str]) -> Iterator[tuple[int, Path | bytes]]:
        """Yield the files unopened, in the order of the names."""
        for place, name in enumerate(names):
            yield place, self.path / name

    def stamps(self, names: Sequence[str]) -> Iterator[str]:
        """Yield name, size and time of each file."""
        yield str(self.path.resolve())
        for name in names:
            yield f"{name} {_stamp(self.path / name)}"


@dataclass(frozen=True)
class TarArchive:
    """Members of a tar archive, which can only be read from front to back."""

    path: Path

    def names(self) -> list[str]:
        """Return the names of all members that are files."""
        with _reading(self.path), tarfile.open(self.path) as archive:
            return _checked((member.name for member in archive if member.isfile()), self.path)

    def contents(self, names: Sequence[str]) -> Iterator[tuple[int, Path | bytes]]:
        """Yield what is in the members, in the order of the archive."""
        places = {name: place for place, name in enumerate(names)}
        with _reading(self.path), tarfile.open(self.path) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                if file is not None and member.name in places:
                    packed = self.path.stat().st_size
                    refuse_bomb(f"{self.path}: {member.name}", packed, member.size)
                    yield places.pop(member.name), file.read()
                if not places:
                    return

    def stamps(self, names: Sequence[str]) -> Iterator[str]:
        """Yield size and time of the archive, and the names."""
        yield from (str(self.path.resolve()), _stamp(self.path), *names)


@dataclass(frozen=True)
class ZipArchive:
    """Members of a zip archive."""

    path: Path

    def names(self) -> list[str]:
        """Return the names of all members that are files."""
        with _reading(self.path), zipfile.ZipFile(self.path) as archive:
            members = archive.infolist()
        names = (item.filename for item in members if not item.filename.endswith("/"))
        return _checked(names, self.path)

    def contents(self, names: Sequence[str]) -> Iterator[tuple[int, Path | bytes]]:
        """Yield what is in the members, in the order of the names."""
        with _reading(self.path), zipfile.ZipFile(self.path) as archive:
            held = {member.filename: member for member in archive.infolist()}
            for place, name in enumerate(names):
                if name in held:
                    size = held[name].compress_size
                    refuse_bomb(f"{self.path}: {name}", size, held[name].file_size)
                    yield place, archive.read(name)

    def stamps(self, names: Sequence[str]) -> Iterator[str]:
        """Yield size and time of the archive, and the names."""
        yield from (str(self.path.resolve()), _stamp(self.path), *names)


def _checked(members: Iterable[str], path: Path) -> list[str]:
    """Return names of members; one that leaves the archive or is there twice is refused."""
    names = list(members)
    seen: set[str] = set()
    for name in names:
        parts = PurePosixPath(name).parts
        if not parts:
            raise DataError(f"{path}: a file in the archive has no name")
        if ".." in parts or name.startswith("/"):
            raise DataError(f"{path}: {name} is outside of the archive")
        if name in seen:
            raise DataError(f"{path}: {name} is in the archive twice")
        seen.add(name)
    return names


def _stamp(path: Path) -> str:
    try:
        state = path.stat()
    except OSError:
        return "missing"
    return f"{state.st_size} {state.st_mtime_ns}"


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except _FAULTS as error:
        raise unreadable_data(path, error) from error
