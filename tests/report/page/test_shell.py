"""The shell of a page: data that cannot break out, and a policy that admits only its own script."""

import base64
import hashlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.errors import RunError
from fedbb.report.page.shell import Page, island, policy, render_page, write_page
from helpers.page_reader import PageReader

EVIL = "</script><!--<script>'\"&amp;\u2028\u2029\\u003c"
WORDS = st.text() | st.sampled_from([EVIL, "</SCRIPT >", "]]>", "__proto__"])


@given(st.recursive(WORDS | st.none() | st.integers(), lambda inner: st.lists(inner, max_size=4)))
def test_data_comes_back_as_it_was_and_holds_no_sign_of_markup(data):
    text = island({"it": data})
    assert json.loads(text) == {"it": data}
    assert not set(text) & set("<>&'\u2028\u2029")


def test_numbers_that_json_does_not_know_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        island([float("nan")])


@given(WORDS, WORDS)
def test_title_and_data_add_no_element(title, word):
    shown = PageReader(render_page(Page(title, [word], "<p>body</p>")))
    plain = PageReader(render_page(Page("title", ["word"], "<p>body</p>")))
    assert shown.faults == []
    assert shown.tags() == plain.tags()


def test_the_policy_holds_the_digests_of_style_and_script():
    page = render_page(Page("t", {}, "<p>b</p>", style="p { color: red }", script="shell.data();"))
    rules = PageReader(page).attributes("content")
    found = next(rule for rule in rules if "default-src 'none'" in rule)
    for tag, kind in (("style", "style-src"), ("script", "script-src")):
        inside = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL).group(1)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in found
    assert "unsafe" not in found


def test_another_script_has_another_policy():
    assert policy("a", "b") != policy("a", "c") != policy("b", "c")


def test_half_a_letter_is_written_as_a_question_mark(tmp_path):
    write_page(tmp_path / "deep" / "page.html", Page("t", ["\ud800"], ""))
    assert '["?"]' in (tmp_path / "deep" / "page.html").read_text(encoding="utf-8")


def test_a_page_that_cannot_be_written_is_told_of(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"page\.html cannot be written"):
        write_page(tmp_path / "file" / "page.html", Page("t", [], ""))


def test_the_browser_runs_nothing_but_the_pages_own_script(chromium, tmp_path):
    path = tmp_path / "page.html"
    write_page(
        path, Page("t", [], "<p id='it'>body</p>", script="shell.byId('it').textContent = 1;")
    )
    text = path.read_text()
    path.write_text(text.replace("<main", "<script>document.title = 'stolen'</script><main"))
    page = chromium.new_page()
    refused = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto(path.as_uri())
    assert page.title() == "t"
    assert page.inner_text("#it") == "1"
    assert any("Content Security Policy" in text for text in refused)
    page.close()
