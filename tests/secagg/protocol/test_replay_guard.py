import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedbb.errors import PrivacyError
from fedbb.secagg.protocol.replay_guard import FileJournal, Journal


@pytest.fixture(params=["own", "shared"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    file = FileJournal(tmp_path / "journal")
    return file if request.param == "own" else file.of(3)


def test_the_first_decision_stands(journal: Journal) -> None:
    assert journal.lookup("key") is None
    assert journal.record("key", "yes") is None
    assert journal.record("key", "no") == "yes"
    assert journal.lookup("key") == "yes"
    assert journal.record("other", "no") is None


def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    FileJournal(tmp_path / "journal").record("a key with spaces, “quotes” and\nlines", "yes")
    again = FileJournal(tmp_path / "journal")
    assert again.record("a key with spaces, “quotes” and\nlines", "no") == "yes"


def test_two_holders_of_one_journal_see_each_others_decisions(tmp_path: Path) -> None:
    one, two = FileJournal(tmp_path / "journal"), FileJournal(tmp_path / "journal")
    assert one.record("a", "1") is None
    assert two.record("a", "2") == "1"
    assert two.record("b", "2") is None
    assert one.record("b", "1") == "2"


def test_of_many_at_once_one_decides(tmp_path: Path) -> None:
    def decide(number: int) -> str | None:
        return FileJournal(tmp_path / "journal").record("key", str(number))

    with ThreadPoolExecutor(8) as threads:
        before = list(threads.map(decide, range(24)))
    assert before.count(None) == 1
    assert {decision for decision in before if decision is not None} == {str(before.index(None))}


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_line_that_a_crash_cut_short_was_never_acted_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal"
    journal = FileJournal(path)
    journal.record("first", "yes")
    whole = path.stat().st_size
    journal.record("second", "yes")
    path.write_bytes(path.read_bytes()[: whole + cut])
    again = FileJournal(path)
    assert again.record("second", "no") is None
    assert FileJournal(path).lookup("second") == "no"
    assert FileJournal(path).lookup("first") == "yes"


def test_a_damaged_journal_stops_the_client(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    FileJournal(path).record("first", "yes")
    path.write_bytes(path.read_bytes().replace(b"[", b"{"))
    with pytest.raises(PrivacyError, match="is damaged; without it"):
        FileJournal(path).record("second", "yes")


def test_a_journal_that_cannot_be_kept_stops_the_client(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="cannot be written"):
        FileJournal(tmp_path / "missing" / "journal").record("key", "yes")


def test_others_cannot_read_it(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    FileJournal(path).record("key", "yes")
    assert path.stat().st_mode & 0o077 == 0


def test_a_decision_is_there_though_the_process_dies_at_once(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path;"
        "from fedbb.secagg.protocol.replay_guard import FileJournal;"
        "FileJournal(Path(sys.argv[1])).record('key', 'yes'); os._exit(137)"
    )
    path = tmp_path / "journal"
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False, timeout=120)
    assert ended.returncode == 137
    assert FileJournal(path).lookup("key") == "yes"


def test_clients_that_share_a_file_decide_each_for_itself(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal", durable=False)
    assert journal.of(0).record("round 1", "yes") is None
    assert journal.of(0).record("round 1", "no") == "yes"
    assert journal.of(1).lookup("round 1") is None
    again = FileJournal(tmp_path / "journal", durable=False)
    assert again.of(0).record("round 1", "no") == "yes"
    assert again.of(1).record("round 1", "no") is None


def test_journals_of_earlier_versions_still_open(tmp_path: Path) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    own.write_bytes(b'["begun 00ff","run, round 1, attempt 1"]\n')
    shared.write_bytes(b'[3, "begun 00ff", "run, round 1, attempt 1"]\n[3, "rou')
    assert FileJournal(own).lookup("begun 00ff") == "run, round 1, attempt 1"
    journal = FileJournal(shared, durable=False).of(3)
    assert journal.record("begun 00ff", "again") == "run, round 1, attempt 1"
    assert journal.record("begun 11", "now") is None
    assert FileJournal(shared).of(3).lookup("begun 11") == "now"
