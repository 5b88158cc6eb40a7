"""Writing a file so that a crash leaves the old one or the new one, never a part."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

TEMPORARY = ".tmp"


def write_bytes(path: Path, content: bytes) -> None:
    """Write to a temporary name beside `path`, push to disk, then rename into place."""
    temporary = path.with_name(f".{path.name}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105 - tests stop the process at this very call
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def sync_folder(folder: Path) -> None:
    """Push a rename in this folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_temporary(folder: Path) -> None:
    """Delete what an earlier crash left half written."""
    for path in folder.glob(f".*{TEMPORARY}"):
        path.unlink()
