"""A page of words, tables and figures as one HTML file that needs no network and no script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path

from fedbb._util.files import replacing
from fedbb.errors import RunError
from fedbb.report.text import Table, to_bytes

# Even if a hostile name slipped through, the browser would load and run nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
LONGEST_WHOLE = 20


@dataclass(frozen=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True)
class Note:
    """Sentences set apart under a small title."""

    title: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Tables:
    """Tables beside each other where there is room."""

    tables: tuple[Table, ...]


@dataclass(frozen=True)
class Picture:
    """A figure as SVG from this package, which is trusted, and the caption under it."""

    svg: str
    caption: str


@dataclass(frozen=True)
class Pictures:
    """Figures beside each other where there is room."""

    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Code:
    """Lines to be typed; `title` says what they do."""

    title: str
    lines: tuple[str, ...]


Block = Paragraph | Note | Tables | Pictures | Code


@dataclass(frozen=True)
class Section:
    """A part of the page under its own title."""

    title: str
    blocks: tuple[Block, ...]


def write_page(path: Path, title: str, sections: Sequence[Section]) -> None:
    """Write the page; nothing but its figures is taken as markup."""
    try:
        with replacing(path) as file:
            file.write(to_bytes(render_page(title, sections)))
    except OSError as error:
        raise RunError(f"page {path} cannot be written: {error}") from error


def render_page(title: str, sections: Sequence[Section]) -> str:
    """Return the whole page as HTML."""
    style = resources.files("fedbb.report").joinpath("page.css").read_text(encoding="utf-8")
    body = "\n".join(_section(number, part) for number, part in enumerate(sections, start=1))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{_contents(sections)}
{body}
</main>
</body>
</html>
"""


def _contents(sections: Sequence[Section]) -> str:
    links = "".join(
        f'<li><a href="#part-{number}">{escape(part.title)}</a></li>'
        for number, part in enumerate(sections, start=1)
    )
    return f'<nav aria-label="Contents"><ol>{links}</ol></nav>'


def _section(number: int, part: Section) -> str:
    blocks = "\n".join(_block(block) for block in part.blocks)
    title = f'<h2 id="part-{number}-title">{escape(part.title)}</h2>'
    opening = f'<section id="part-{number}" aria-labelledby="part-{number}-title">'
    return f"{opening}\n{title}\n{blocks}\n</section>"


def _block(block: Block) -> str:
    match block:
        case Paragraph(text):
            return f"<p>{_words(text)}</p>"
        case Note(title, sentences):
            words = "".join(f"<p>{_words(sentence)}</p>" for sentence in sentences)
            return f'<div class="note"><h3>{escape(title)}</h3>{words}</div>'
        case Pictures(pictures):
            return f'<div class="figures">{"".join(map(_picture, pictures))}</div>'
        case Code(title, lines):
            text = escape("\n".join(lines))
            return _scroll(f"<h3>{escape(title)}</h3>", title, f"<pre>{text}</pre>")
        case Tables(tables):
            parts = "\n".join(_scroll("", table.caption, _table(table)) for table in tables)
            return f'<div class="tables">{parts}</div>'


def _picture(picture: Picture) -> str:
    label = escape(picture.caption)
    svg = picture.svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return f"<figure>{svg}<figcaption>{label}</figcaption></figure>\n"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.head)
    rows = "\n".join(f"<tr>{_cells(row)}</tr>" for row in table.rows)
    return (
        f"<table><caption>{escape(table.caption)}</caption>"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"
    )


def _cells(row: Sequence[str]) -> str:
    name, *others = row
    cells = [f'<th scope="row">{escape(name)}</th>']
    for text in others:
        whole = ' class="whole"' if len(text) <= LONGEST_WHOLE else ""
        cells.append(f"<td{whole}>{_words(text)}</td>")
    return "".join(cells)


def _words(text: str) -> str:
    return escape(text).replace(" ± ", "&nbsp;±&nbsp;")


def _scroll(heading: str, label: str, content: str) -> str:
    """Let wide content scroll in itself, by keyboard too, instead of widening the page."""
    opening = f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">'
    return f"{heading}{opening}{content}</div>"
