"""The live page: what it shows, that it follows the runs, and that nothing else is served."""

import http.client
from urllib.parse import urlsplit

import pytest

from fedbb.report.page.report import make_report
from fedbb.report.watch import LivePage, serve
from fedbb.runs.runner import run
from helpers.rights import denied
from helpers.small_run import small_recipe


def ask(address, path=None, host=None):
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)
    headers = {} if host is None else {"Host": host}
    connection.request("GET", parts.path if path is None else path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), dict(answer.getheaders())


@pytest.fixture
def rounds(tmp_path):
    """A run under way after its first round."""
    records = run(small_recipe(tmp_path / "data"), tmp_path / "runs" / "one", workers=0)
    next(records)
    yield records
    records.close()


def test_the_page_follows_a_run_round_by_round_and_is_made_anew_only_then(
    tmp_path, rounds, monkeypatch
):
    page = LivePage([tmp_path / "runs"], "Now")
    made = []

    def count(*words):
        made.append(words)
        return make_report(*words)

    monkeypatch.setattr("fedbb.report.watch.make_report", count)
    assert '"1 of 4 rounds"]' in page.read()
    assert '"left_out":[]' in page.read()
    assert len(made) == 1
    next(rounds)
    assert "2 of 4 rounds" in page.read()
    for _ in rounds:
        pass
    assert '"under_way":[]' in page.read()
    assert len(made) == 3


def test_folders_without_a_round_are_no_error(tmp_path):
    assert "there is no finished run" in LivePage([tmp_path], "<b>").read()
    assert "&lt;b&gt;" in LivePage([tmp_path], "<b>").read()


def test_a_folder_that_is_not_there_yet_is_named_until_a_run_makes_it(tmp_path):
    page = LivePage([tmp_path / "runs"], "Now")
    assert page.missing() == [tmp_path / "runs"]
    assert "runs is not there yet" in page.read()
    next(run(small_recipe(tmp_path / "data"), tmp_path / "runs" / "one", workers=0))
    assert page.missing() == []
    assert "1 of 4 rounds" in page.read()


def test_a_folder_that_cannot_be_read_is_named_until_it_can(tmp_path, rounds):
    page = LivePage([tmp_path], "Now")
    with denied(tmp_path / "runs"):
        assert f"{tmp_path / 'runs'} cannot be read: Permission denied" in page.read()
    assert '"1 of 4 rounds"]' in page.read()


def test_only_the_secret_address_is_answered_and_only_on_loopback(tmp_path, rounds):
    with serve(LivePage([tmp_path / "runs"], "Now")) as address:
        status, text, headers = ask(address)
        assert status == 200
        assert "1 of 4 rounds" in text
        assert headers["Refresh"] == "5"
        assert headers["Cache-Control"] == "no-store"
        token = urlsplit(address).path
        assert len(token) > 30
        for path in ("/", "/index.html", token[:-2], token + "x", token + "../recipe.json", "*"):
            status, text, _ = ask(address, path)
            assert status == 404
            assert "rounds" not in text
        assert ask(address, host="example.org:80")[0] == 404
        assert ask(address, host=f"localhost:{urlsplit(address).port}")[0] == 200
        assert urlsplit(address).hostname == "127.0.0.1"
    with pytest.raises(OSError, match="refused"):
        ask(address)


def test_two_servers_have_two_secrets(tmp_path):
    with serve(LivePage([tmp_path], "a")) as one, serve(LivePage([tmp_path], "b")) as two:
        assert urlsplit(one).path != urlsplit(two).path
        assert ask(one, urlsplit(two).path)[0] == 404


def test_a_browser_shows_the_next_round_by_itself(tmp_path, rounds, chromium, monkeypatch):
    monkeypatch.setattr("fedbb.report.watch.SECONDS", 1)
    with serve(LivePage([tmp_path / "runs"], "Now")) as address:
        page = chromium.new_page()
        complaints = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        page.get_by_text("1 of 4 rounds").first.wait_for(state="attached", timeout=20_000)
        next(rounds)
        page.get_by_text("2 of 4 rounds").first.wait_for(state="attached", timeout=20_000)
        # While the page loads itself anew, it has no title.
        page.wait_for_function("document.title === 'Now'")
        assert complaints == []
        page.close()
