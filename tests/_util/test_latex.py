"""LaTeX is balanced and escaped, and compiles wherever pdflatex with booktabs is found."""

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb._util.latex import GREEK, escape_latex
from fedbb.report.sweep.table_files import as_latex, read_table
from helpers.grid_results import run_cells, small_grid

HOSTILE = {
    r"\input{/etc/passwd} \end{table}": "fedavg",
    "[x] 5 % & a_b # $ ^ ~ { } | < > \" ' `": "fedavg-scaled",
    "日本語 Ünïcødé ß ☃ αβγδεζηθικλμνξοπρςστυφχψω ΓΔΘΛΞΠΣΥΦΨΩ ϛ \x07": "fedbb",
}
ALLOWED = re.compile(
    r"\\(?:textbackslash\{\}|textasciicircum\{\}|textasciitilde\{\}|char34|ldots\{\}|ss\{\}"
    r"|ae\{\}|o\{\}|O\{\}|ensuremath\{(?:[<>|-]|\^\{[+-]\}|\\[A-Za-z]+)\}|[{}$&#%_]"
    r"|[`'^~=\"rvc]\{[A-Za-z]\})"
)


def hostile_table(folder):
    grid = small_grid(folder, rows=HOSTILE, columns=("[1]", "a\\\\b"), seeds="[0, 1]")
    return read_table(grid, [], run_cells(grid, folder / "runs"))


@given(st.text())
def test_nothing_special_is_left_once_the_escapes_are_taken_out(text):
    escaped = escape_latex(text)
    assert escaped.isascii()
    assert "\n" not in escaped
    rest = ALLOWED.sub("", escaped)
    assert not set(rest) & set("\\$&#%_^~"), rest
    assert rest.replace("{}", "").count("{") == rest.replace("{}", "").count("}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50 % & a_b", r"50 \% \& a\_b"),
        ("δ = 0.1", r"\ensuremath{\delta} = 0.1"),
        ("Λ ΑΒ ο", r"\ensuremath{\Lambda} AB o"),
        ("é ü", r"\'{e} \"{u}"),
        ("1 ± 2", r"1 \ensuremath{\pm} 2"),
        ("雪", "(U+96EA)"),
        ("\\", r"\textbackslash{}"),
    ],
)
def test_signs_become_what_latex_prints(text, expected):
    assert escape_latex(text) == expected


def test_every_greek_letter_is_one_that_latex_knows():
    for name in re.findall(r"\\ensuremath\{\\(\w+)\}", escape_latex("".join(map(chr, GREEKS)))):
        assert name in GREEK


GREEKS = range(0x370, 0x400)


def test_every_row_has_as_many_cells_as_columns(tmp_path):
    for form, body in re.findall(
        r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", as_latex(hostile_table(tmp_path)), re.S
    ):
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert rows
        assert {len(re.split(r"(?<!\\)&", row)) for row in rows} == {len(form)}
        assert all(row.startswith("{") for row in rows)


def test_the_table_uses_nothing_beyond_booktabs(tmp_path):
    text = as_latex(hostile_table(tmp_path))
    assert text.startswith("% Needs \\usepackage{booktabs}.\n")
    assert re.findall(r"\\begin\{(\w+)\}", text) == ["table", "tabular"] * 2
    assert text.isascii()


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_it_compiles_with_hostile_labels(tmp_path):
    (tmp_path / "table.tex").write_text(as_latex(hostile_table(tmp_path)))
    page = (
        r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{table}\end{document}"
    )
    (tmp_path / "page.tex").write_text(page)
    command = ["pdflatex", "-draftmode", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
