"""Text of any kind as LaTeX prints it, without packages."""

from __future__ import annotations

import re
import unicodedata

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
