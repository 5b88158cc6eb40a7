"""Processes of a federation: each with its log, and all of them ended with whoever started them."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from fedbb.flower.admin import reaper as keeper

OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""Flower calls home for usage figures, updates and packages unless told not to."""

PACE = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
"""How often a node looks for work to begin, in seconds; Flower's own second is long for a test."""


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a Flower program that keeps its files in `home`, offline."""
    # Flower finds its other programs by name.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    kept = {key: value for key, value in os.environ.items() if not key.startswith("FLWR_")}
    return {**kept, "PATH": path, "FLWR_HOME": str(home.resolve()), **OFFLINE, **PACE}


def program(name: str) -> str:
    """Return the path of one of Flower's programs in this environment."""
    return str(Path(sys.executable).parent / name)


class Group:
    """Processes that end together: with this object, or with the process that made it."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(8)
        self._programs: list[Program] = []
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        script = [sys.executable, "-I", "-S", keeper.__file__, self.mark]
        self._keeper = subprocess.Popen(script, stdin=subprocess.PIPE, start_new_session=True)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._keeper is not None
        self._keeper.communicate()
        for started in self._programs:
            started.stop()  # where the keeper cannot see marks, this is what ends them

    def start(
        self, name: str, command: Sequence[str], variables: Mapping[str, str], log: Path
    ) -> Program:
        """Start a program whose output is added to a log."""
        started = Program(f"{self.mark}/{name}/", list(command), dict(variables), log)
        self._programs.append(started)
        return started


class Program:
    """A running program and all that it started."""

    def __init__(self, mark: str, command: list[str], variables: dict[str, str], log: Path) -> None:
        self.mark = mark
        self.command = command
        self.variables = {**variables, keeper.MARK: mark}
        self.log = log
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal is for whoever started it.
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
        """The process id, which is that of its process group too."""
        return self.process.pid

    def is_running(self) -> bool:
        """Tell whether it has not ended."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End it and all that it started at once, as a power cut would."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        keeper.end(self.mark, patience=0)
        self.process.wait()

    def stop(self, seconds: float = keeper.PATIENCE) -> None:
        """Let it take its leave, and end it if it does not."""
        if self.is_running():
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
        self.kill()

    def output(self, place: int = 0) -> str:
        """Return what its log holds, from a place in bytes on."""
        written = self.log.read_bytes() if self.log.exists() else b""
        return written[place:].decode("utf-8", errors="replace")
