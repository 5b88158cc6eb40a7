"""What Ctrl-C does while a block runs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

STOPPED = 130
"""The exit code after Ctrl-C, as shells have it."""


@contextmanager
def on_interrupt(
    action: Callable[[int, FrameType | None], object] | signal.Handlers,
) -> Iterator[None]:
    """Do this on SIGINT in the block; where SIGINT is ignored already it stays so."""
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before is signal.SIG_IGN:
        yield  # only the main thread may say what becomes of signals
        return
    signal.signal(signal.SIGINT, action)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def end_at_once(*_: object) -> NoReturn:
    """End this process with one message, as long as there is nothing to save.

    For imports: KeyboardInterrupt inside those of torch aborts the process from its C++ code.
    """
    os.write(2, b"stopped\n")
    os._exit(STOPPED)
