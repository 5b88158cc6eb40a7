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


def test_a_folder_that_the_first_run_will_make_is_waited_for(tmp_path):
    with started("watch", "runs", cwd=tmp_path) as process:
        assert process.stdout.readline().startswith("runs is not there yet")
        assert process.stdout.readline().startswith("open http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


def test_what_is_no_folder_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    done = fedbb("watch", tmp_path / "file", monkeypatch=monkeypatch)
    assert done.code == 2
    assert "is not a folder" in done.err
