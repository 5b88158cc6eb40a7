"""Helping with a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the likeliest known name and all that are allowed.

    >>> nearest("bta", ["beta", "tau"])
    '; did you mean beta? Known: beta, tau'
    """
    names = list(known)
    if not names:
        return "; it takes none"
    longer = [known for known in names if len(name) > 2 and known.startswith(name)]
    likely = longer or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    allowed = ", ".join(names)
    return f"; did you mean {likely[0]}? Known: {allowed}" if likely else f"; known: {allowed}"
