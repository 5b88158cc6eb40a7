"""Tables of words as LaTeX that needs no package but booktabs, whatever the words are."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from fedbb.report.sweep import layout
from fedbb.report.sweep.score_table import GridTable
from fedbb.report.text import Table

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
LONGEST = 60


def as_latex(table: GridTable) -> str:
    """Return the overview and the paired differences as two floats, to be read in by input."""
    grid, at_glance = table.grid, layout.overview(table)
    told = [f"{grid.title}.", grid.caption, f"{at_glance.caption}.", *grid.notes]
    told += [f"In the paper: {grid.source}."] if grid.source else []
    parts = [_float(at_glance, " ".join(told), words=1 + table.has_paper)]
    differences = layout.gaps(table)
    if differences.rows:
        title = f"{grid.title}: {differences.caption}"
        parts.append(_float(differences, title, words=len(table.axes) + 3))
    notes = "".join(f"% {_comment(remark)}\n" for remark in layout.notes(table))
    return f"% Needs \\usepackage{{booktabs}}.\n{notes}" + "\n".join(parts)


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX prints as it is; letters it cannot print are named by number.

    >>> print(escape_latex("5 % of δ_0"))
    5 \% of \ensuremath{\delta}\_0
    """
    return "".join(_sign(sign) for sign in " ".join(text.split()))


def _float(table: Table, caption: str, words: int) -> str:
    """Return a floating table whose first columns hold words and are set to the left."""
    form = "l" * words + "r" * (len(table.head) - words)
    return (
        "\\begin{table}\n\\centering\n\\footnotesize\n\\setlength{\\tabcolsep}{4pt}\n"
        f"\\caption{{{escape_latex(caption)}}}\n\\medskip\n"
        f"\\begin{{tabular}}{{{form}}}\n\\toprule\n"
        f"{_cells(table.head)}\n\\midrule\n{_body(table.rows)}\\bottomrule\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def _body(rows: Sequence[tuple[str, ...]]) -> str:
    """Return the rows; a name that stands in the row above already is not said again."""
    text, before = "", None
    for name, *others in rows:
        gap = "\\addlinespace\n" if before not in (None, name) else ""
        text += f"{gap}{_cells(('' if name == before else name, *others))}\n"
        before = name
    return text


def _cells(cells: Sequence[str]) -> str:
    # A row that begins with a bracket would be taken for an option of the line break above it.
    return " & ".join(f"{{{escape_latex(_cut(cell))}}}" for cell in cells) + r" \\"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _comment(text: str) -> str:
    return " ".join(text.split()).encode("ascii", "replace").decode()


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
