"""The page is one sound file that loads nothing, and shows names from outside as words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import RunError
from fedbb.report.page import (
    Code,
    Note,
    Paragraph,
    Picture,
    Pictures,
    Section,
    Tables,
    render_page,
    write_page,
)
from fedbb.report.text import Table
from helpers.page_reader import PageReader

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><path d="M0 0"/></svg>'
EVIL = """</title></style></pre><script>alert("x")</script><img src=x onerror='y'>" ' & &lt;"""


def sections(word):
    blocks = (
        Paragraph(word),
        Note(word, (word, word)),
        Tables((Table(word, (word, "b"), ((word, word), ("c", "d"))),)),
        Pictures((Picture(SVG, word),)),
        Code(word, (word,)),
    )
    return [Section(word, blocks), Section("last", ())]


def outline(page):
    reader = PageReader(page)
    assert reader.faults == []
    return reader.tags()


def test_all_blocks_are_there_in_order():
    reader = PageReader(render_page("A title", sections("word")))
    assert reader.faults == []
    assert reader.text("title", "h1") == ["A title", "A title"]
    assert reader.text("h2") == ["word", "last"]
    assert reader.text("caption", "pre", "figcaption") == ["word", "word", "word"]
    tags = reader.tags()
    assert tags.index("p") < tags.index("table") < tags.index("svg") < tags.index("pre")


def test_hostile_words_change_no_element_and_read_as_they_are():
    page = render_page(EVIL, sections(EVIL))
    assert outline(page) == outline(render_page("title", sections("word")))
    reader = PageReader(page)
    assert "script" not in reader.tags()
    assert EVIL in "".join(reader.text("p"))
    assert EVIL in reader.attributes("aria-label")


@given(st.text(), st.text())
def test_no_words_whatever_change_the_elements_of_a_page(title, word):
    assert outline(render_page(title, sections(word))) == outline(render_page("t", sections("w")))


def test_the_page_loads_nothing_and_runs_nothing():
    page = render_page("title", sections("word"))
    reader = PageReader(page)
    assert set(reader.tags()).isdisjoint({"script", "link", "img", "iframe", "object", "base"})
    assert all(link.startswith("#") for link in reader.attributes("href"))
    assert "@import" not in page
    assert "url(" not in page
    assert [value for value in reader.attributes("content") if "default-src 'none'" in value]


def test_links_lead_to_the_sections():
    reader = PageReader(render_page("title", sections("word")))
    ids = reader.attributes("id")
    assert len(ids) == len(set(ids))
    assert [link[1:] for link in reader.attributes("href")] == ["part-1", "part-2"]
    assert {"part-1", "part-2"} <= set(ids)


def test_the_page_suits_phones_both_color_schemes_and_paper():
    page = render_page("title", sections("word"))
    assert "width=device-width" in page
    for media in ("prefers-color-scheme: dark", "max-width: 40rem", "@media print"):
        assert media in page


def test_wide_content_scrolls_by_keyboard_and_figures_have_a_label():
    reader = PageReader(render_page("title", sections("word")))
    regions = [found for _, found in reader.elements if found.get("role") == "region"]
    assert len(regions) == 2
    assert all(region["tabindex"] == "0" and region["aria-label"] for region in regions)
    (figure,) = (found for tag, found in reader.elements if tag == "svg")
    assert (figure["role"], figure["aria-label"]) == ("img", "word")


def test_a_margin_is_not_torn_from_its_figure():
    page = render_page("title", [Section("s", (Paragraph("85.1 ± 1.2 points"),))])
    assert "85.1&nbsp;±&nbsp;1.2 points" in page


def test_a_page_that_cannot_be_written_is_told_with_its_path(tmp_path):
    with pytest.raises(RunError, match=r"page .*missing.page\.html cannot be written"):
        write_page(tmp_path / "missing" / "page.html", "title", [])


def test_the_file_is_the_page_in_utf8_even_of_broken_letters(tmp_path):
    write_page(tmp_path / "page.html", "für alle \ud800", sections("δ = 0.3"))
    text = (tmp_path / "page.html").read_text("utf-8")
    assert text == render_page("für alle ?", sections("δ = 0.3"))
