"""One table in every form, whatever its names and cells hold."""

import csv
import io
import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedbb._util.table import (
    GREEK,
    Cell,
    Column,
    Table,
    elide,
    escape_latex,
    escape_markdown,
    make_table,
    number_cell,
    to_csv,
    to_html,
    to_latex,
    to_markdown,
    to_page,
    to_rich,
)
from fedbb.report.sweep.table_files import as_latex, read_table
from helpers.grid_results import run_cells, small_grid
from helpers.page_reader import PageReader

HOSTILE = '<script>alert("x")</script> | a_b 5 % & \\ `c` [d](e) $f$ #{g}~^ \x07\n'
NAN = float("nan")


def small():
    rows = [("FedAvg", Cell("51.0", 0.51234567), 2), ("FedBB", Cell("62.0", 0.62, True), 3)]
    return make_table(["method", Column("F1", "right", "points"), "seeds"], rows, "Scores")


def shown(table, **options):
    target = io.StringIO()
    Console(file=target, width=200, color_system=None).print(to_rich(table, **options))
    return [line.rstrip() for line in target.getvalue().splitlines()]


def test_names_are_left_numbers_right_and_units_stand_behind_names():
    table = small()
    assert [column.align for column in table.columns] == ["left", "right", "right"]
    assert table.head == ("method", "F1, points", "seeds")
    assert table.texts == (("FedAvg", "51.0", "2"), ("FedBB", "62.0", "3"))


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="3 entries for 2 columns"):
        make_table(["a", "b"], [("x", 1, 2)])


def test_markdown_has_caption_alignment_and_emphasis():
    grid = (
        "| method | F1, points | seeds |\n| --- | --: | --: |\n| FedAvg | 51.0 | 2 |\n"
        "| FedBB | **62.0** | 3 |\n"
    )
    assert to_markdown(small()) == grid
    assert to_markdown(small(), captioned=True) == f"Scores:\n\n{grid}"


def test_markdown_that_is_written_as_such_stays():
    table = make_table(["`up`"], [("**2** s",)])
    assert to_markdown(table, escaped=False) == "| `up` |\n| --- |\n| **2** s |\n"
    assert to_markdown(table) == "| \\`up\\` |\n| --- |\n| \\*\\*2\\*\\* s |\n"


@given(st.text())
def test_no_text_can_break_out_of_its_markdown_cell(text):
    found = escape_markdown(text)
    assert "\n" not in found
    assert re.search(r"(?<!\\)(\\\\)*[|<]", found) is None


def test_csv_holds_full_precision_and_nothing_for_undefined():
    rows = [("a", Cell("51.0", 0.51234567), NAN), ("b", number_cell(NAN, "0.0"), None)]
    text = to_csv(make_table(["name", "x", "y"], rows))
    assert text == "name,x,y\na,0.51234567,\nb,,\n"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_csv_holds_no_formula(start):
    rows = [(f"{start}cmd|' /C calc'!A0", 1), ("-1", -2.5)]
    text = to_csv(make_table(["x", "y"], rows))
    _, first, second = csv.reader(io.StringIO(text, newline=""))
    assert first[0].startswith("'")
    assert second == ["-1", "-2.5"]


def test_latex_writes_equal_names_once():
    rows = [("FedAvg", "1"), ("FedAvg", "2"), ("[x]", Cell("3 %", strong=True))]
    table = make_table(["method", "F1"], rows, "Scores")
    body = to_latex(table, merge_names=True).split("\\midrule\n")[1].split("\\bottomrule")[0]
    assert body == (
        "{FedAvg} & {1} \\\\\n{} & {2} \\\\\n\\addlinespace\n{[x]} & {\\textbf{3 \\%}} \\\\\n"
    )
    assert "\\begin{tabular}{lr}" in to_latex(table)
    assert to_latex(table).count("{FedAvg}") == 2


def test_html_is_balanced_and_holds_text_only():
    table = make_table([HOSTILE, "n"], [(HOSTILE, Cell("<b>", strong=True))], HOSTILE)
    reader = PageReader(to_html(table))
    assert reader.faults == []
    assert set(reader.tags()) == {
        *("table", "caption", "thead", "tbody", "tr", "th", "td", "strong"),
    }
    assert HOSTILE in reader.text("th")
    assert reader.text("strong") == ["<b>"]


def test_the_terminal_shows_words_and_no_control_characters():
    lines = shown(make_table(["name", "n"], [("[red]bell\x07", 1), ("[red]bell\x07", 22)], "Title"))
    assert lines[0] == "Title"
    assert lines[2].split() == ["[red]bell", "1"]
    assert lines[3].startswith("[red]bell")
    assert shown(make_table(["name"], [("x",), ("x",)]), merge_names=True)[1:] == ["x", ""]


def test_a_page_gets_texts_and_numbers_to_sort_by():
    rows = [("a", Cell("51.0", 0.5), 3, None, "word")]
    assert to_page(make_table("abcde", rows, "C", note="N")) == {
        "caption": "C",
        "note": "N",
        "head": list("abcde"),
        "rows": [["a", ["51.0", 0.5], ["3", 3], ["–", None], "word"]],
    }


def test_a_table_without_rows_has_its_head_in_every_form():
    table = Table((Column("method"),), ())
    assert to_markdown(table) == "| method |\n| --- |\n"
    assert to_csv(table) == "method\n"
    assert "{method}" in to_latex(table)
    assert "<tbody></tbody>" in to_html(table)
    assert to_page(table)["rows"] == []


@given(st.text(), st.integers(4, 40))
def test_shortened_names_fit_on_one_line_and_keep_both_ends(text, length):
    short = elide(text, length)
    assert len(short) <= length
    assert short.isprintable()
    if "…" in short and "…" not in text:
        head, tail = short.split("…")
        assert head
        assert tail


def test_short_names_stay_and_signs_that_cannot_be_seen_go():
    assert elide("short") == "short"
    assert elide("a\x00b\n c") == "a b c"


HOSTILE_LATEX = {
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
    grid = small_grid(folder, rows=HOSTILE_LATEX, columns=("[1]", "a\\\\b"), seeds="[0, 1]")
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


def test_the_terminal_shows_a_note_below_and_no_head_without_titles():
    table = make_table(("name", "n"), [("a", 1)], "caption", note="a note")
    assert shown(table) == ["caption", "name  n", "a     1", "a note"]
    assert shown(make_table(("", ""), [("a", 1)])) == ["a  1"]


def test_a_colored_cell_is_colored_on_a_terminal_that_has_colors():
    target = io.StringIO()
    table = make_table(("name",), [(Cell("bad", strong=True, color="red"),)])
    Console(file=target, force_terminal=True, color_system="standard").print(to_rich(table))
    assert "\x1b[1;31mbad" in target.getvalue()
