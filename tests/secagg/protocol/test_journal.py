import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedbb.errors import PrivacyError
from fedbb.secagg.protocol.journal import FileJournal, Journal, MemoryJournal


@pytest.fixture(params=["memory", "file"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Journal:
    return MemoryJournal() if request.param == "memory" else FileJournal(tmp_path / "journal")


def test_the_first_decision_stands(journal: Journal) -> None:
    assert journal.seen("key") is None
    assert journal.note("key", "yes") is None
    assert journal.note("key", "no") == "yes"
    assert journal.seen("key") == "yes"
    assert journal.note("other", "no") is None


def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    FileJournal(tmp_path / "journal").note("a key with spaces, “quotes” and\nlines", "yes")
    again = FileJournal(tmp_path / "journal")
    assert again.note("a key with spaces, “quotes” and\nlines", "no") == "yes"


def test_two_holders_of_one_journal_see_each_others_decisions(tmp_path: Path) -> None:
    one, two = FileJournal(tmp_path / "journal"), FileJournal(tmp_path / "journal")
    assert one.note("a", "1") is None
    assert two.note("a", "2") == "1"
    assert two.note("b", "2") is None
    assert one.note("b", "1") == "2"


def test_of_many_at_once_one_decides(tmp_path: Path) -> None:
    def decide(number: int) -> str | None:
        return FileJournal(tmp_path / "journal").note("key", str(number))

    with ThreadPoolExecutor(8) as threads:
        before = list(threads.map(decide, range(24)))
    assert before.count(None) == 1
    assert {decision for decision in before if decision is not None} == {str(before.index(None))}


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_line_that_a_crash_cut_short_was_never_acted_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "journal"
    journal = FileJournal(path)
    journal.note("first", "yes")
    whole = path.stat().st_size
    journal.note("second", "yes")
    path.write_bytes(path.read_bytes()[: whole + cut])
    again = FileJournal(path)
    assert again.note("second", "no") is None
    assert FileJournal(path).seen("second") == "no"
    assert FileJournal(path).seen("first") == "yes"


def test_a_damaged_journal_stops_the_client(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    FileJournal(path).note("first", "yes")
    path.write_bytes(path.read_bytes().replace(b"[", b"{"))
    with pytest.raises(PrivacyError, match="is damaged; without it"):
        FileJournal(path).note("second", "yes")


def test_a_journal_that_cannot_be_kept_stops_the_client(tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="cannot be kept"):
        FileJournal(tmp_path / "missing" / "journal").note("key", "yes")


def test_others_cannot_read_it(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    FileJournal(path).note("key", "yes")
    assert path.stat().st_mode & 0o077 == 0


def test_a_decision_is_there_though_the_process_dies_at_once(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path;"
        "from fedbb.secagg.protocol.journal import FileJournal;"
        "FileJournal(Path(sys.argv[1])).note('key', 'yes'); os._exit(137)"
    )
    path = tmp_path / "journal"
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False, timeout=120)
    assert ended.returncode == 137
    assert FileJournal(path).seen("key") == "yes"
