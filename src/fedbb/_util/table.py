"""One table, and its forms: Markdown, CSV, LaTeX, HTML, the terminal, and data for a page."""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape as escape_html
from typing import TYPE_CHECKING, Any, Literal

from fedbb._util.text import visible

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType
    from rich.table import Table as RichTable

UNDEFINED = "–"
LATEX_LENGTH, TERMINAL_LENGTH, NAME_LENGTH = 60, 120, 24
_MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]|<>"})
# Programs that open a CSV file take a cell that begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: What the column holds.
        align: Side of its cells: "left" for words, "right" for numbers.
        unit: Unit of its numbers; stands behind the name.
    """

    name: str
    align: Literal["left", "right"] = "left"
    unit: str = ""

    @property
    def title(self) -> str:
        """The name with its unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name


@dataclass(frozen=True)
class Cell:
    """A text with the number behind it.

    Args:
        text: What a reader sees.
        value: Unrounded number, by which pages sort and which CSV holds; None if undefined.
        strong: Whether the text is emphasized.
        color: Color of the text on a terminal, such as "green".
    """

    text: str
    value: float | None = None
    strong: bool = False
    color: str = ""


Entry = str | float | Cell | None
"""A cell; a bare number is shown as Python writes it, None as undefined."""


@dataclass(frozen=True)
class Table:
    """Columns and rows with a caption; the first column names the rows.

    Args:
        columns: Names, alignments and units.
        rows: One entry for each column.
        caption: What the table shows.
        note: Explanation that stands under the table.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]
    caption: str = ""
    note: str = ""

    @property
    def head(self) -> tuple[str, ...]:
        """Titles of the columns."""
        return tuple(column.title for column in self.columns)

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """Rows as a reader sees them."""
        return tuple(tuple(text_of(entry) for entry in row) for row in self.rows)


def make_table(
    head: Iterable[str | Column],
    rows: Iterable[Sequence[Entry]],
    caption: str = "",
    *,
    words: int = 1,
    note: str = "",
) -> Table:
    """Return a table whose first columns hold words and whose other columns hold numbers.

    Args:
        head: Names of the columns; a `Column` is taken as it is.
        rows: One entry for each column.
        caption: What the table shows.
        words: How many columns are aligned to the left.
        note: Explanation that stands under the table.

    Raises:
        ValueError: If a row has more or fewer entries than there are columns.
    """
    columns = tuple(
        name if isinstance(name, Column) else Column(name, "left" if place < words else "right")
        for place, name in enumerate(head)
    )
    lines = tuple(tuple(row) for row in rows)
    for line in lines:
        if len(line) != len(columns):
            raise ValueError(f"a row has {len(line)} entries for {len(columns)} columns: {line}")
    return Table(columns, lines, caption, note)


def number_cell(value: float, text: str) -> Cell:
    """Return a number under the text that a reader sees; NaN is undefined."""
    return Cell(UNDEFINED, None) if math.isnan(value) else Cell(text, value)


def text_of(entry: Entry) -> str:
    """Return what a reader sees of an entry."""
    if isinstance(entry, Cell):
        return entry.text
    if entry is None or (isinstance(entry, float) and math.isnan(entry)):
        return UNDEFINED
    return entry if isinstance(entry, str) else repr(entry)


def to_markdown(table: Table, *, captioned: bool = False, escaped: bool = True) -> str:
    """Return a table in Markdown.

    Args:
        table: What to write.
        captioned: Whether the caption stands above as a line that ends with a colon.
        escaped: Whether signs of Markdown in names and cells lose their meaning.
    """

    def shown(text: str) -> str:
        return escape_markdown(text) if escaped else text

    lines = [
        [shown(title) for title in table.head],
        ["--:" if column.align == "right" else "---" for column in table.columns],
        *([_emphasize(entry, shown(text_of(entry)), "**{}**") for entry in r] for r in table.rows),
    ]
    grid = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"{shown(table.caption)}:\n\n{grid}" if captioned else grid


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return " ".join(text.split()).translate(_MARKDOWN)


def to_csv(table: Table) -> str:
    """Return a table as CSV with full precision; undefined cells are empty.

    A text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow([_csv_entry(title) for title in table.head])
    writer.writerows([_csv_entry(entry) for entry in row] for row in table.rows)
    return target.getvalue()


def to_latex(table: Table, *, merge_names: bool = False) -> str:
    """Return a table as a LaTeX float that needs no package but booktabs.

    Args:
        table: What to write; long cells are cut.
        merge_names: Whether equal names in the first column are written once.
    """
    form = "".join(column.align[0] for column in table.columns)
    names = [text_of(row[0]) for row in table.rows]
    body = ""
    for place, row in enumerate(table.rows):
        is_new = not merge_names or place == 0 or names[place] != names[place - 1]
        body += "\\addlinespace\n" if merge_names and is_new and place > 0 else ""
        body += _latex_row(row if is_new else ("", *row[1:]))
    return (
        "\\begin{table}\n\\centering\n\\footnotesize\n\\setlength{\\tabcolsep}{4pt}\n"
        f"\\caption{{{escape_latex(table.caption)}}}\n\\medskip\n"
        f"\\begin{{tabular}}{{{form}}}\n\\toprule\n"
        f"{_latex_row(table.head)}\\midrule\n{body}\\bottomrule\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def to_html(table: Table) -> str:
    """Return a table as an HTML element whose names and cells are text only."""
    styles = [' style="text-align:right"' * (c.align == "right") for c in table.columns]
    head = "".join(
        f'<th scope="col"{style}>{escape_html(title)}</th>'
        for style, title in zip(styles, table.head, strict=True)
    )
    body = "".join(f"<tr>{_html_row(row, styles)}</tr>" for row in table.rows)
    caption = f"<caption>{escape_html(table.caption)}</caption>" if table.caption else ""
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def to_rich(
    table: Table, *, merge_names: bool = False, length: int = TERMINAL_LENGTH, wrap: bool = True
) -> RichTable:
    """Return a table for the terminal; control characters are removed.

    Args:
        table: What to show; without titles of columns it has no head.
        merge_names: Whether equal names in the first column are shown once.
        length: Most letters of a cell; longer texts lose their middle.
        wrap: Whether cells may break into lines; short names in the first column never do.
    """
    # Rich takes a tenth of a second to import, which other forms of a table need not pay.
    from rich.table import Table as RichTable
    from rich.text import Text

    def shown(entry: Entry) -> Text:
        style = f"{'bold' * entry.strong} {entry.color}" if isinstance(entry, Cell) else ""
        return Text(elide(text_of(entry), length), style=style.strip())

    result = RichTable(
        title=Text(elide(table.caption, TERMINAL_LENGTH)) if table.caption else None,
        caption=Text(elide(table.note, 10 * TERMINAL_LENGTH)) if table.note else None,
        title_justify="left",
        caption_justify="left",
        show_header=any(table.head),
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    # A short name stays in one piece, so that a reader can search for it.
    is_named = all(len(row[0]) <= NAME_LENGTH for row in table.texts)
    for place, column in enumerate(table.columns):
        whole = not wrap or (place == 0 and is_named)
        result.add_column(shown(column.title), justify=column.align, no_wrap=whole)
    before = None
    for row in table.rows:
        texts = [shown(entry) for entry in row]
        name = text_of(row[0])
        if merge_names and name == before:
            texts[0] = Text("")
        result.add_row(*texts)
        before = name
    return result


def to_terminal(part: RenderableType) -> RenderableType:
    """Return what a terminal shows: text without markup and without control characters.

    Args:
        part: Any text, which may come from outside; or a table or the like, which stays as it is.
    """
    from rich.text import Text

    if isinstance(part, str):
        return Text(visible(part))
    if isinstance(part, Text):
        shown = part.copy()
        shown.plain = visible(part.plain)
        return shown
    return part


def to_page(table: Table) -> dict[str, Any]:
    """Return a table for a page's script: texts, and pairs of text and number to sort by."""
    return {
        "caption": table.caption,
        "note": table.note,
        "head": list(table.head),
        "rows": [[_page_entry(entry) for entry in row] for row in table.rows],
    }


def elide(text: str, length: int = 18) -> str:
    """Return a text on one line, without control characters, its middle cut out to fit.

    >>> elide("left lung, upper lobe", 12)
    'left lu…lobe'
    """
    plain = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    if len(plain) <= length:
        return plain
    end = (length - 1) * 2 // 5
    return f"{plain[: length - 1 - end]}…{plain[len(plain) - end :]}"


def _emphasize(entry: Entry, text: str, form: str) -> str:
    return form.format(text) if isinstance(entry, Cell) and entry.strong else text


def _csv_entry(entry: Entry) -> str:
    if isinstance(entry, Cell):
        entry = entry.text if entry.value is None and entry.text != UNDEFINED else entry.value
    if entry is None or (isinstance(entry, float) and math.isnan(entry)):
        return ""
    if not isinstance(entry, str):
        return repr(entry)
    # Python's writer leaves a bare carriage return unquoted, which readers take for a new row.
    text = entry.replace("\r", " ")
    return f"'{text}" if entry.startswith(_FORMULA) and not _is_number(entry) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _latex_row(row: Sequence[Entry]) -> str:
    cells = [_emphasize(entry, _latex_text(entry), "\\textbf{{{}}}") for entry in row]
    # A row that begins with a bracket would be taken for an option of the line break above it.
    return " & ".join(f"{{{cell}}}" for cell in cells) + " \\\\\n"


def _latex_text(entry: Entry) -> str:
    text = text_of(entry)
    return escape_latex(text if len(text) <= LATEX_LENGTH else text[: LATEX_LENGTH - 1] + "…")


def _html_row(row: Sequence[Entry], styles: Sequence[str]) -> str:
    cells = []
    for place, (entry, style) in enumerate(zip(row, styles, strict=True)):
        text = _emphasize(entry, escape_html(text_of(entry)), "<strong>{}</strong>")
        start, end = ('th scope="row"', "th") if place == 0 else ("td", "td")
        cells.append(f"<{start}{style}>{text}</{end}>")
    return "".join(cells)


def _page_entry(entry: Entry) -> Any:
    if isinstance(entry, Cell):
        return [entry.text, None if entry.value is None else round(entry.value, 6)]
    if isinstance(entry, str):
        return entry
    is_undefined = entry is None or math.isnan(entry)
    return [text_of(entry), None if is_undefined else entry]


SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}",
    '"': r"{\char34}",
    "±": r"\ensuremath{\pm}",
    "−": r"\ensuremath{-}",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "×": r"\ensuremath{\times}",
    "·": r"\ensuremath{\cdot}",
    "≤": r"\ensuremath{\le}",
    "≥": r"\ensuremath{\ge}",
    "⁺": r"\ensuremath{^{+}}",
    "⁻": r"\ensuremath{^{-}}",
    "→": r"\ensuremath{\to}",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
}
GREEK = {
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"),
    *("lambda", "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi"),
    *("omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi"),
    *("Psi", "Omega"),
}
LIKE_LATIN = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True))
ACCENTS = {
    "\u0300": r"\`",
    "\u0301": r"\'",
    "\u0302": r"\^",
    "\u0303": r"\~",
    "\u0304": r"\=",
    "\u0308": r"\"",
    "\u030a": r"\r",
    "\u030c": r"\v",
    "\u0327": r"\c",
}


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX prints as it is; letters it cannot print are named by number.

    >>> print(escape_latex("5 % of δ_0"))
    5 \% of \ensuremath{\delta}\_0
    """
    return "".join(_sign(sign) for sign in " ".join(text.split()))


def _sign(sign: str) -> str:
    if sign in SIGNS:
        return SIGNS[sign]
    if " " <= sign <= "~":
        return sign
    return _greek(sign) or _accented(sign) or f"(U+{ord(sign):04X})"


def _greek(sign: str) -> str | None:
    """Return a Greek letter as LaTeX spells it, those that look Latin as Latin ones."""
    found = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", unicodedata.name(sign, ""))
    if found is None or sign in LIKE_LATIN:
        return LIKE_LATIN.get(sign)
    name = {"LAMDA": "lambda"}.get(found[2], found[2].lower())
    name = name.capitalize() if found[1] == "CAPITAL" else name
    return rf"\ensuremath{{\{name}}}" if name in GREEK else None


def _accented(sign: str) -> str | None:
    """Return a Latin letter with its accent put on by LaTeX."""
    parts = unicodedata.normalize("NFD", sign)
    if len(parts) == 2 and parts[0].isascii() and parts[1] in ACCENTS:
        return f"{ACCENTS[parts[1]]}{{{parts[0]}}}"
    return {"ß": r"\ss{}", "æ": r"\ae{}", "ø": r"\o{}", "Ø": r"\O{}"}.get(sign)


def make_frame(
    rows: Iterable[Mapping[str, Any]], index: Sequence[str] | None = None, what: str = "row"
) -> pd.DataFrame:
    """Return rows as a pandas DataFrame; ImportError says what to install.

    Args:
        rows: the values of each row by column.
        index: names of the rows, if they have any.
        what: what these names are of.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError('a DataFrame needs pandas: pip install "fedbb[pandas]"') from error
    named = None if index is None else pd.Index(list(index), name=what)
    return pd.DataFrame(list(rows), index=named)
