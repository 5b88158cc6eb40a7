"""Processes of a federation: each with its log, and all of them ended with their parent.

The file is also run as a script, the reaper: a small process that outlives the one which started a
federation, only to end what it started. Its standard input is a pipe that nobody writes to. Once
the other end is gone, however its process ended, it ends every process with the same mark. As a
script it may import nothing but the standard library.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""Without these Flower sends usage statistics, looks for updates and installs packages."""

POLLING = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5"}
"""Seconds between two questions whether a run is to be started at the server; Flower's default is
1."""

MARK = "FEDBB_FEDERATION"
"""Environment variable that all processes of a federation, and their children, have in common."""

PATIENCE = 6.0
"""Seconds between SIGTERM and SIGKILL; Flower's programs end by themselves within five."""


HANDED_ON = (
    *("HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ"),
    *("TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV"),
    # Many hospitals reach the outside through a proxy with an authority of its own.
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
)
HANDED_ON_PREFIXES = (
    *("LC_", "XDG_", "LD_", "DYLD_", "PYTHON", "FEDBB_", "COV", "HF_"),
    *("TORCH", "PYTORCH_", "CUDA_", "NVIDIA_", "NCCL_", "OMP_", "MKL_", "KMP_", "OPENBLAS_"),
)
"""What programs get of the operator's environment. A variable that is meant for another server,
such as FORWARDED_ALLOW_IPS, must not open this one, and secrets of others stay outside."""


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a Flower program that keeps its files in `home`, offline."""
    # Flower finds its other programs by name.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    kept = {
        key: value
        for key, value in os.environ.items()
        if key in HANDED_ON or key.startswith(HANDED_ON_PREFIXES)
    }
    return {**kept, "PATH": path, "FLWR_HOME": str(home.resolve()), **OFFLINE, **POLLING}


class Group:
    """Processes that end together: with this object, or with the process that made it."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(8)
        self._programs: list[Program] = []
        self._reaper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        script = [sys.executable, "-I", "-S", __file__, self.mark]
        self._reaper = subprocess.Popen(script, stdin=subprocess.PIPE, start_new_session=True)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._reaper is not None
        self._reaper.communicate()
        for started in self._programs:
            started.stop()  # without /proc the reaper finds no marks, and this ends them

    def start(
        self, name: str, command: Sequence[str], variables: Mapping[str, str], log: Path
    ) -> Program:
        """Start a program whose output is appended to a log."""
        started = Program(f"{self.mark}/{name}/", list(command), dict(variables), log)
        self._programs.append(started)
        return started


class Program:
    """A running program and all processes that it started."""

    def __init__(self, mark: str, command: list[str], variables: dict[str, str], log: Path) -> None:
        self.mark = mark
        self.command = command
        self.variables = {**variables, MARK: mark}
        self.log = log
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        with self.log.open("ab") as log:
            # A session of its own, so that Ctrl-C in the terminal reaches only its parent.
            self.process = subprocess.Popen(
                self.command,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id, which is also that of its process group."""
        return self.process.pid

    def is_running(self) -> bool:
        """Tell whether it has not ended."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End it and all processes that it started at once, as a power cut would."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        end_marked(self.mark, patience=0)
        self.process.wait()

    def stop(self, seconds: float = PATIENCE) -> None:
        """Ask it to end, and kill it after some seconds."""
        if self.is_running():
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        self.kill()

    def output(self, place: int = 0) -> str:
        """Return the content of its log from a byte offset on."""
        written = self.log.read_bytes() if self.log.exists() else b""
        return written[place:].decode("utf-8", errors="replace")


def find_marked(mark: str) -> list[int]:
    """Return the processes whose mark begins with this one; none where there is no /proc."""
    wanted = f"\0{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        # Processes of other users cannot be read, and processes may end meanwhile.
        with suppress(OSError):
            if wanted in b"\0" + (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def end_marked(mark: str, patience: float = PATIENCE) -> None:
    """End every process with a mark: SIGTERM, and after some seconds SIGKILL."""
    limit = time.monotonic() + patience
    left = find_marked(mark)
    _send(left, signal.SIGTERM)
    _send(left, signal.SIGCONT)  # a stopped process does not handle SIGTERM
    while left and time.monotonic() < limit:
        time.sleep(0.05)
        left = find_marked(mark)
    while left:
        _send(left, signal.SIGKILL)
        time.sleep(0.05)
        left = find_marked(mark)


def _send(processes: list[int], signum: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signum)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_marked(sys.argv[1])
