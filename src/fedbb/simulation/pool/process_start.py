"""Starting and ending worker processes: torch is imported once, and each begins with it."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from fedbb._util.interrupt import on_interrupt

_preloaded = ["fedbb.simulation.pool.worker"]
_starting = threading.Lock()


def usable_cores() -> int:
    """Return how many cores this process may use, by its affinity and its control group."""
    # Imported here, since joblib takes a third of a second and most commands need no cores.
    from joblib import cpu_count

    return int(cpu_count())


def context() -> BaseContext:
    """Return the way processes are started here.

    A server that has only imported is safe to fork, which this process, with its threads, is not.
    Elsewhere than on Linux system libraries object to that too, and each process starts afresh.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    serving = multiprocessing.get_context("forkserver")
    serving.set_forkserver_preload(_preloaded)
    return serving


def prepare(*modules: str) -> None:
    """Have the server begin its imports, these among them, while this process goes on."""
    _preloaded.extend(name for name in modules if name not in _preloaded)
    if context().get_start_method() == "forkserver":
        # For its processes too: Ctrl-C is for the parent.
        with on_interrupt(signal.SIG_IGN):
            multiprocessing.forkserver.ensure_running()


def start(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a process that runs a function of an importable module.

    The caller's own script is not imported again in it, so it needs no guard around its last lines.
    """
    process = context().Process(target=target, args=arguments, daemon=True)  # type: ignore[attr-defined]
    with _starting:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            process.start()
        finally:
            sys.modules["__main__"] = main
    return process  # type: ignore[no-any-return]


def serve_parent() -> None:
    """Make this process end with its parent and leave Ctrl-C to it.

    A parent that is killed could not end it, and what it holds could not be taken up again.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def cause_of_death(process: BaseProcess) -> str:
    """Say what ended a process."""
    process.join()
    code = process.exitcode
    if code is None or code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"killed by {name}" + (", perhaps for lack of memory" if name == "SIGKILL" else "")
