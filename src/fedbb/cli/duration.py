"""Lengths of time in words."""

from __future__ import annotations


def spell(seconds: float) -> str:
    """Return a length of time in one or two units.

    >>> spell(8), spell(90), spell(6600), spell(200_000)
    ('8 s', '1 min 30 s', '1 h 50 min', '2 d 7 h')
    """
    whole = max(0, round(seconds))
    for unit, inner, length, part in (("d", "h", 86400, 3600), ("h", "min", 3600, 60)):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // part} {inner}"
    # Past ten minutes seconds say nothing.
    if whole >= 600:
        return f"{whole // 60} min"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"
