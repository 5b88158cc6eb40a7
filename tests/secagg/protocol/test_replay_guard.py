import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedbb.errors import PrivacyError, RefusedError
from fedbb.secagg.protocol.messages import AttemptId
from fedbb.secagg.protocol.replay_guard import (
    MEASURING,
    SCORING,
    FileJournal,
    Journal,
    ReplayGuard,
    RunLimit,
)
from helpers.secagg_clients import identity_of


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


def test_the_folder_and_then_every_decision_are_written_to_disk(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut loses what is only in the cache; each fsync is noted with what it writes."""
    written: list[str | bytes] = []
    fsync = os.fsync

    def note(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        written.append("folder" if path == tmp_path else path.read_bytes())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    journal.record("first", "yes")
    journal.record("second", "no")
    journal.record("second", "yes")
    assert written[0] == "folder"
    lines = [line.count(b"\n") for line in written[1:] if isinstance(line, bytes)]
    assert lines == [1, 2]
    assert b"second" in written[-1]  # type: ignore[operator]


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


def attempt(number: int, attempts: int = 1, run: str = "run") -> AttemptId:
    return AttemptId(run, number, attempts, f"{run}-{number}-{attempts}")


class Client:
    """A client that restarts before each message: only its journal remembers."""

    def __init__(self, path: Path, rounds: int | None = 5, shared: bool = False) -> None:
        self.path, self.rounds, self.shared = path, rounds, shared

    def answer(self, attempt_id: AttemptId, view: str = "model") -> None:
        file = FileJournal(self.path)
        journal: Journal = file.of(3) if self.shared else file
        guard = ReplayGuard(3, identity_of(3), journal, self.rounds)
        guard.begin(attempt_id)
        guard.bind_view(attempt_id, view)


@pytest.mark.parametrize("shared", [False, True])
def test_new_rounds_rise_and_known_ones_may_be_repeated_under_their_view(
    tmp_path: Path, shared: bool
) -> None:
    client = Client(tmp_path / "journal", shared=shared)
    for number in (0, 1, 3):
        client.answer(attempt(number))
    client.answer(attempt(1, 2))  # a server that crashed goes back to its checkpoint
    client.answer(attempt(SCORING + 1))  # scores are sums of their own
    with pytest.raises(RefusedError, match="has answered round 3 of run; new rounds must rise"):
        client.answer(attempt(2))
    client.answer(attempt(4))
    with pytest.raises(RefusedError, match="has begun this attempt before"):
        client.answer(attempt(4))
    client.answer(attempt(1, run="other"))


def test_a_round_has_one_view(tmp_path: Path) -> None:
    client = Client(tmp_path / "journal")
    client.answer(attempt(1), "one model")
    client.answer(attempt(1, 2), "one model")
    with pytest.raises(RefusedError, match="another model, recipe or sums in round 1 of run"):
        client.answer(attempt(1, 3), "another model")
    client.answer(attempt(1, 4), "one model")
    client.answer(attempt(2), "another model")


@pytest.mark.parametrize(
    "number", [6, 1000, SCORING, SCORING + 6, MEASURING, MEASURING + 6, MEASURING * 2 + 1]
)
def test_rounds_above_the_agreed_number_are_refused(tmp_path: Path, number: int) -> None:
    with pytest.raises(RefusedError, match="not in the recipe, which has 5 rounds"):
        Client(tmp_path / "journal").answer(attempt(number))
    Client(tmp_path / "journal", rounds=None).answer(attempt(number))


def test_the_last_agreed_round_is_answered(tmp_path: Path) -> None:
    Client(tmp_path / "journal").answer(attempt(5))
    Client(tmp_path / "journal").answer(attempt(SCORING + 5))


def limit(path: Path, allowed: int = 1, roster: str = "roster") -> RunLimit:
    return RunLimit(FileJournal(path / "runs"), roster, allowed)


def test_a_second_run_needs_consent_and_a_resumed_one_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limit(tmp_path).check("first")
    limit(tmp_path).check("second")  # nothing was disclosed yet
    limit(tmp_path).admit("first")
    limit(tmp_path).admit("first")
    limit(tmp_path).check("first")
    for ask in (limit(tmp_path).check, limit(tmp_path).admit):
        with pytest.raises(RefusedError, match=r"taken part in first.* allowed-private-runs = 2"):
            ask("second")
    assert caplog.text == ""
    limit(tmp_path, 2).check("second")
    limit(tmp_path, 2).admit("second")
    assert "second is run 2 of 2 allowed under this roster" in caplog.text
    limit(tmp_path, 2).admit("first")
    with pytest.raises(RefusedError, match="allowed-private-runs = 3"):
        limit(tmp_path, 2).admit("third")
    limit(tmp_path, roster="another").admit("third")
