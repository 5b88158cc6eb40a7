"""Text of unknown origin in messages: one line, visible characters only, bounded length."""

from __future__ import annotations

LIMIT = 300
"""Characters of foreign text that a message or log line may quote."""

DIGITS = 30
"""Longer integers are described instead of printed: Python refuses to print very long ones."""


def shorten(value: object, limit: int = LIMIT) -> str:
    r"""Return a value's text on one line, cut to a length.

    Characters that a terminal might obey become "?".

    Args:
        value: text or any object with a `str`.
        limit: the largest number of characters returned, at least 1.

    >>> shorten("first\nsecond\x1b[2J", 12)
    'first secon…'
    """
    text = " ".join(str(value).split())
    visible = "".join(character if character.isprintable() else "?" for character in text)
    return visible if len(visible) <= limit else visible[: limit - 1] + "…"


def visible(text: str) -> str:
    r"""Return a text with "?" for every character that a terminal might obey; lines stay.

    >>> visible("first\nsecond\x1b[2J")
    'first\nsecond?[2J'
    """
    return "".join(
        character if character.isprintable() or character in "\n\t" else "?" for character in text
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural.

    >>> counted(1, "round"), counted(1200, "round")
    ('1 round', '1,200 rounds')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def quote(value: object, limit: int = LIMIT) -> str:
    """Return a value as a message may quote it: its `repr`, on one line and cut to a length.

    Args:
        value: anything, also from an untrusted sender.
        limit: the largest number of characters returned, at least 1.

    >>> quote("a" * 9, 8)
    "'aaaaaa…"
    >>> quote(10**400)
    'an integer of more than 30 digits'
    """
    if type(value) is int and abs(value) >= 10**DIGITS:
        return f"an integer of more than {DIGITS} digits"
    return shorten(repr(value), limit)


def quote_some(names: set[str], most: int = 3) -> str:
    """Return the first few names in quotation marks, and how many more there are.

    >>> quote_some({"a", "b", "c", "d"})
    "'a', 'b', 'c' and 1 more"
    """
    shown = ", ".join(quote(name, 40) for name in sorted(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
