"""The report page of runs that are still training, served to this machine only."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread

from fedbb.errors import FedbbError
from fedbb.report.groups import Gathered, LeftOut, gather
from fedbb.report.page.report import make_report
from fedbb.report.page.shell import render_page
from fedbb.report.results import find_runs

SECONDS = 5
"""How often a browser asks for the page again."""

HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class LivePage:
    """The page of some runs; it is made anew only if one of them has changed.

    Args:
        runs: Run folders, or folders that hold them.
        title: Title of the page.
    """

    def __init__(self, runs: Sequence[Path], title: str) -> None:
        self.runs = runs
        self.title = title
        self._lock = Lock()
        self._seen: object = None
        self._page = ""

    def read(self) -> str:
        """Return the page as HTML: the report, or why there is none yet."""
        with self._lock:
            if (seen := self._state()) != self._seen:
                self._page = self._render()
                self._seen = seen
            return self._page

    def missing(self) -> list[Path]:
        """Return the folders that are not there yet; the first run makes them."""
        return [path for path in self.runs if not path.exists()]

    def _state(self) -> list[tuple[str, int, int]]:
        found = [(str(path), 0, 0) for path in self.missing()]

        def note(error: OSError) -> None:
            found.append((str(error.filename), 0, 0))

        for path in (path for run in self.runs for path in find_runs(run, note)):
            for name in ("rounds.jsonl", "summary.json"):
                # A run that is moved away while it is looked at counts as gone.
                with suppress(OSError):
                    about = (path / name).stat()
                    found.append((str(path / name), about.st_mtime_ns, about.st_size))
        return found

    def _render(self) -> str:
        try:
            return render_page(make_report(self._gather(), Path.cwd(), self.title)[0])
        except FedbbError as error:
            return f"<!DOCTYPE html><title>{escape(self.title)}</title><p>{escape(str(error))}</p>"

    def _gather(self) -> Gathered:
        missing = self.missing()
        found = gather([path for path in self.runs if path not in missing], unfinished=True)
        absent = (LeftOut(path, "is not there yet") for path in missing)
        return Gathered(found.runs, (*absent, *found.left_out))


@contextmanager
def serve(page: LivePage, port: int = 0) -> Iterator[str]:
    """Serve a page on this machine while the block runs, and yield its address.

    The address holds a secret; every other path is answered by 404. Only the loopback interface
    is opened, and requests that name another host are refused.

    Args:
        page: What to serve.
        port: Port to listen on; any free one if 0.

    Raises:
        OSError: The port cannot be opened.
    """
    token = secrets.token_urlsafe(24)
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(page, f"/{token}/"))
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{token}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(page: LivePage, path: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # a client that sends nothing holds no thread

        def do_GET(self) -> None:
            """Answer with the page, or with nothing."""
            host = self.headers.get("Host", "").rpartition(":")[0]
            allowed = host in ("127.0.0.1", "localhost")  # no name that was bound to this address
            if not allowed or not hmac.compare_digest(self.path.encode(), path.encode()):
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            text = page.read().encode()
            self.send_response(HTTPStatus.OK)
            for name, value in HEADERS.items():
                self.send_header(name, value)
            self.send_header("Refresh", str(SECONDS))
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Print nothing: requests hold the secret."""

    return Handler
