"""Where worker processes come from: torch is imported once, and each of them begins with it."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import sys
import threading
from collections.abc import Callable
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

PRELOADED = ["fedbb.engine.worker"]

_starting = threading.Lock()


def context() -> BaseContext:
    """Return the way processes are started here.

    A server that has only imported is safe to fork, which this process, with its threads, is not.
    Elsewhere than on Linux system libraries object to that too, and each process starts afresh.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    serving = multiprocessing.get_context("forkserver")
    serving.set_forkserver_preload(PRELOADED)
    return serving


def prepare() -> None:
    """Have the server begin its imports, while this process goes on with other things."""
    if context().get_start_method() == "forkserver":
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
