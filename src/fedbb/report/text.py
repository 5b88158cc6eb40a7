"""Tables of words, for Markdown, the terminal and the page."""

from __future__ import annotations

from dataclasses import dataclass

MARKDOWN_SIGNS = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]|<>"})


@dataclass(frozen=True)
class Table:
    """A caption, the heads of the columns, and the cells row by row; the first column names."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def markdown_table(table: Table) -> str:
    """Return a table in Markdown, its figures to the right, under its caption."""
    alignment = [":--"] + ["--:"] * (len(table.head) - 1)
    lines = [table.head, tuple(alignment), *table.rows]
    cells = [[cell if line is lines[1] else escape(cell) for cell in line] for line in lines]
    grid = "\n".join(f"| {' | '.join(line)} |" for line in cells)
    return f"{escape(table.caption)}:\n\n{grid}\n"


def escape(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return " ".join(text.split()).translate(MARKDOWN_SIGNS)


def to_bytes(text: str) -> bytes:
    """Return UTF-8, with a question mark for half a letter, which JSON can bring in."""
    return text.encode("utf-8", "replace")
