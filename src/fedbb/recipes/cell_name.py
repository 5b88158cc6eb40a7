"""Names for the cells of a grid: readable, safe as folders, and unique by what they run."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

LONGEST = 32
"""Characters of a label that a name keeps; the hash at its end distinguishes the rest."""


def cell_name(at: Mapping[str, str], values: Mapping[str, Any]) -> str:
    """Return a folder name from a cell's labels, its seed, and a hash of all its settings.

    The engine is left out of the hash: where a run happens does not change its result.
    """
    decisive = {
        key: value for key, value in values.items() if key != "engine" or value == "central"
    }
    content = json.dumps([dict(at), decisive], sort_keys=True, default=str)
    mark = hashlib.sha256(content.encode()).hexdigest()[:8]
    labels = [plain(label) for label in at.values()]
    return "_".join([*filter(None, labels), f"seed{values['seed']}", mark])


def plain(label: str) -> str:
    """Return a label in small ASCII letters, digits and . + - only.

    >>> plain("FedBB (δ = 0.1)")
    'fedbb-delta-0.1'
    """
    spelled = "".join(_spell(letter) for letter in unicodedata.normalize("NFKD", label))
    return re.sub(r"[^a-z0-9.+]+", "-", spelled.lower())[:LONGEST].strip("-.")


def _spell(letter: str) -> str:
    found = re.fullmatch(r"GREEK \w+ LETTER (\w+)", unicodedata.name(letter, ""))
    if found:
        return found[1]
    return "" if unicodedata.combining(letter) else letter
