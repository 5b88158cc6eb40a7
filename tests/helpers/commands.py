"""The command line, called inside the test's own process or in one of its own."""

import contextlib
import io
import signal
import subprocess
import sys
from dataclasses import dataclass

from fedbb.cli.main import main


@dataclass
class Result:
    code: int
    out: str
    err: str


def fedbb(*words, monkeypatch):
    """Call `fedbb` with these words, as a user would."""
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "argv", ["fedbb", *map(str, words)])
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ending:
            code = ending.code or 0
    return Result(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def started(*words, cwd):
    """Yield `fedbb` as a process of its own, which ends with the block at the latest."""
    command = [sys.executable, "-c", "from fedbb.cli.main import main; main()", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=cwd, text=True, preexec_fn=_hear_ctrl_c, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def _hear_ctrl_c():
    # Under a shell's background job, where SIGINT is ignored, the tests would hand that on.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
