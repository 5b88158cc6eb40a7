import json
import signal
import urllib.request

from helpers.commands import fedbb, started
from helpers.small_run import finish, small_recipe


def test_a_page_is_served_until_ctrl_c(tmp_path):
    finish(small_recipe(tmp_path / "data", rounds={"number": 1}), tmp_path / "runs" / "one")
    with started("watch", "runs", "--json", cwd=tmp_path) as process:
        address = json.loads(process.stdout.readline())["address"]
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert "Runs under way" in answer.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
        assert process.stderr.read() == ""


def test_what_is_no_folder_is_refused(tmp_path, monkeypatch):
    done = fedbb("watch", tmp_path / "missing", monkeypatch=monkeypatch)
    assert done.code == 2
    assert "is not a folder" in done.err
