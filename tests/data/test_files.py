import pytest

from fedbb.data.files import replacing, sha256_of
from fedbb.errors import DataError


def test_a_file_is_written_whole_and_no_other_is_left(tmp_path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    with replacing(path) as file:
        file.write(b"content")
        assert not path.exists()
    assert path.read_bytes() == b"content"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, DataError])
def test_whatever_goes_wrong_the_old_file_stays(tmp_path, error) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(error), replacing(path) as file:  # noqa: PT012
        file.write(b"new")
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_named(tmp_path) -> None:
    (tmp_path / "occupied").write_bytes(b"")
    with (
        pytest.raises(DataError, match=r"cannot write .*occupied/file"),
        replacing(tmp_path / "occupied" / "file"),
    ):
        pass


def test_the_checksum_is_that_of_the_standard(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    # The test vector of FIPS 180-2.
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_of(path) == expected
    with pytest.raises(DataError, match="nothing"):
        sha256_of(tmp_path / "nothing")
