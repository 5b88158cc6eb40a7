"""A long-lived process that is asked, line by line, for one more round."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[1]


class Child:
    """A module of ours in a process of its own; outside a `with` block it is not running."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        self.command = [sys.executable, "-m", module, *arguments]

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self.command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def ask(self) -> dict[str, Any]:
        """Have one more round done, and return what the process says of it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("round\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(self.command[1:5])} ended with {self.process.wait()}")
        return json.loads(line)

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
