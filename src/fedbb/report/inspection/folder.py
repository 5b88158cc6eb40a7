"""Everything an inspection found, written into one folder."""

from __future__ import annotations

import json
from pathlib import Path

from fedbb.analysis.inspect import Inspection
from fedbb.report.inspection.page import write_inspection
from fedbb.report.inspection.sheets import write_sheets, write_text


def write_folder(found: Inspection, fragment: str, folder: Path) -> Path:
    """Write index.html, the CSV files, inspection.json and suggestion.toml; return the page."""
    write_sheets(found, folder)
    text = json.dumps(found.as_json(), ensure_ascii=False, allow_nan=False)
    write_text(folder / "inspection.json", text + "\n")
    write_text(folder / "suggestion.toml", fragment)
    return write_inspection(found, fragment, folder / "index.html")
