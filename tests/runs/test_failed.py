import pytest

from fedbb.errors import RunError
from fedbb.runs.failed import forget_failure, note_failure, read_failure
from fedbb.runs.folder import check_foreign


def test_a_noted_failure_is_read_back_until_it_is_forgotten(tmp_path):
    path = tmp_path / "run.1"
    assert read_failure(path) is None
    note_failure(path, 'loss is "nan"\nin round 3 ∞')
    assert read_failure(path) == 'loss is "nan"\nin round 3 ∞'
    forget_failure(path)
    forget_failure(path)
    assert read_failure(path) is None


def test_the_note_does_not_make_the_folder_foreign(tmp_path):
    (tmp_path / "run").mkdir()
    note_failure(tmp_path / "run", "killed")
    check_foreign(tmp_path / "run")


def test_a_damaged_note_still_tells_of_a_failure(tmp_path):
    (tmp_path / "run.failed.json").write_text("{")
    assert "cannot be read" in read_failure(tmp_path / "run")
    (tmp_path / "run.failed.json").write_text("[]")
    assert "without a message" in read_failure(tmp_path / "run")


def test_a_note_that_cannot_be_written_tells_both_reasons(tmp_path):
    with pytest.raises(RunError, match=r"run failed \(killed\), and .*No such file"):
        note_failure(tmp_path / "nowhere" / "run", "killed")
