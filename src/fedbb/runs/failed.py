"""Why a run did not end well, noted beside its folder until the run is tried again."""

from __future__ import annotations

import json
from pathlib import Path

from fedbb._util.files import replacing
from fedbb.errors import RunError

ENDING = ".failed.json"
"""The note lies beside the folder, which holds nothing but a run."""


def note_failure(path: Path, message: str) -> None:
    """Note why the run of this folder failed."""
    text = json.dumps({"message": message}, ensure_ascii=False) + "\n"
    try:
        with replacing(_note(path)) as file:
            file.write(text.encode())
    except OSError as error:
        raise RunError(f"{path.name} failed ({message}), and {error}") from error


def read_failure(path: Path) -> str | None:
    """Return why the run of this folder failed, or None if no failure is noted."""
    try:
        note = json.loads(_note(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return f"the note of its failure cannot be read: {error}"
    message = note.get("message") if isinstance(note, dict) else None
    return str(message or "it failed without a message")


def forget_failure(path: Path) -> None:
    """Take the note away, as when the run is tried again."""
    _note(path).unlink(missing_ok=True)


def _note(path: Path) -> Path:
    return path.with_name(path.name + ENDING)
