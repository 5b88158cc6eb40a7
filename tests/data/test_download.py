import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedbb.data.download import RemoteFile, cache_folder, download, replacing, sha256_of
from fedbb.errors import DataError

CONTENT = bytes(range(256)) * 4096


class Handler(BaseHTTPRequestHandler):
    """Serves the content whole, cut short, with a flipped bit, without end, or not at all."""

    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path != "/endless":
            self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        answers = {
            "/whole": CONTENT,
            "/short": CONTENT[:1000],
            "/flipped": CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]),
            "/endless": CONTENT * 40,
        }
        try:
            self.wfile.write(answers[self.path])
        except ConnectionError:
            assert self.path == "/endless"

    def log_message(self, *_) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def address():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def remote(url: str) -> RemoteFile:
    return RemoteFile("file.bin", url, len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def test_a_download_arrives_whole_and_tells_its_progress(address, tmp_path) -> None:
    told = []
    path = download(remote(f"{address}/whole"), tmp_path, lambda *figures: told.append(figures))
    assert path == tmp_path / "file.bin"
    assert path.read_bytes() == CONTENT
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert told == sorted(told)
    assert len(told) > 1


@pytest.mark.parametrize("answer", ["short", "flipped", "endless"])
def test_other_content_is_refused_and_what_was_there_stays(address, tmp_path, answer) -> None:
    (tmp_path / "file.bin").write_bytes(b"old")
    received = []
    with pytest.raises(DataError, match=r"SHA-256|cannot download"):
        download(remote(f"{address}/{answer}"), tmp_path, lambda done, _: received.append(done))
    assert (tmp_path / "file.bin").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1
    assert received[-1] < 2 * len(CONTENT)


@pytest.mark.parametrize("url", ["{address}/missing", "http://127.0.0.1:1/closed"])
def test_a_server_that_gives_nothing_is_named(address, tmp_path, url) -> None:
    with pytest.raises(DataError, match=r"cannot download http.*data get` by --from"):
        download(remote(url.format(address=address)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_cache_is_where_the_user_says(monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("FEDBB_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/home/somebody/.cache/fedbb")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/somebody")
    assert cache_folder() == Path("/var/cache/somebody/fedbb")
    monkeypatch.setenv("FEDBB_DATA", "~/data")
    assert cache_folder() == Path("/home/somebody/data")


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
