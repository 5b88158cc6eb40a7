"""Texts written as files, whole or not at all."""

from __future__ import annotations

from pathlib import Path

from fedbb._util.files import replacing
from fedbb.errors import RunError


def write_text(path: Path, text: str) -> Path:
    """Write a text as UTF-8, making its folder if needed, and return its path.

    Raises:
        RunError: If the file or its folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            # Names from JSON may hold half a surrogate pair, which UTF-8 cannot encode.
            file.write(text.encode("utf-8", "replace"))
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error}") from error
    return path
