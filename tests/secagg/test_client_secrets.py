import numpy as np
import pytest

from fedbb.errors import RunError
from fedbb.secagg.client_secrets import Kept, PartyFiles, SimulatedJournals
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.statistics import Sums


@pytest.mark.parametrize("sums", [None, Sums(60, 18.944117187952543, (0, 2, 3))])
def test_what_a_client_keeps_comes_back_as_it_was(tmp_path, sums):
    kept = Kept(Identity(b"i" * 32), b"n" * 32, np.array([12, 2**50 + 1, 1]), sums)
    PartyFiles(tmp_path).save(3, kept)
    back = PartyFiles(tmp_path).load(3)
    assert (back.identity.secret, back.nonce, back.sums) == (b"i" * 32, b"n" * 32, sums)
    assert back.declared.tolist() == [12, 2**50 + 1, 1]
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o077 == 0


def test_secrets_are_not_in_what_is_printed():
    kept = Kept(Identity(b"i" * 32), b"n" * 32, np.array([12, 34, 1]))
    assert "iiii" not in repr(kept)
    assert "nnnn" not in repr(kept)
    assert "array" not in repr(kept)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"identity": "zz"}'])
def test_a_damaged_file_is_refused_by_client_without_its_content(tmp_path, content):
    (tmp_path / "client-00003.json").write_text(content)
    with pytest.raises(RunError, match="what client 3 keeps, cannot be read"):
        PartyFiles(tmp_path).load(3)


def test_a_first_decision_stands_for_each_client_and_outlasts_the_process(tmp_path):
    journals = SimulatedJournals(tmp_path / "journal")
    assert journals.of(0).note("round 1", "yes") is None
    assert journals.of(0).note("round 1", "no") == "yes"
    assert journals.of(1).seen("round 1") is None
    again = SimulatedJournals(tmp_path / "journal")
    assert again.of(0).note("round 1", "no") == "yes"
    assert again.of(1).note("round 1", "no") is None


def test_a_line_cut_short_by_a_crash_is_dropped_and_the_next_one_kept(tmp_path):
    path = tmp_path / "journal"
    SimulatedJournals(path).of(0).note("round 1", "yes")
    path.write_bytes(path.read_bytes() + b'[0, "rou')
    journals = SimulatedJournals(path)
    assert journals.of(0).seen("round 1") == "yes"
    journals.of(0).note("round 2", "yes")
    assert SimulatedJournals(path).of(0).seen("round 2") == "yes"
