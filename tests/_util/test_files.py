import pytest

from fedbb._util.files import remove_leftovers, replacing


def test_a_file_appears_whole_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path) as file:
        file.write(b"new")
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file_and_no_leftover(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")

    def fail():
        with replacing(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_leftovers_of_a_crash_are_removed_and_nothing_else(tmp_path):
    for name in (".a.txt.1-ff.part", "b.part", "c.txt"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.part", "c.txt"]
