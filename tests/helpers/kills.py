"""Work in a forked process that is killed by SIGKILL in the middle of it."""

import os
import signal
import traceback

from torch.nn.modules.module import register_module_forward_hook


def forward_passes(work):
    """Return how often any layer runs in this process."""
    calls = []
    hook = register_module_forward_hook(lambda *_: calls.append(1))
    try:
        work()
    finally:
        hook.remove()
    return len(calls)


def kill_at(passes):
    """Let this process be killed by SIGKILL after this number of calls of layers."""
    calls = []

    def count(*_):
        calls.append(1)
        if len(calls) == passes:
            os.kill(os.getpid(), signal.SIGKILL)

    register_module_forward_hook(count)


def end(work):
    """Do some work in a forked process and return how that ends, negative for a signal."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
