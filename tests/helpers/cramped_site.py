"""A site of the loopback grid in a process of its own that has no memory left.

The test sends one message on stdin and reads the reply on stdout, both as pickled bytes.
"""

import contextlib
import ctypes
import pickle
import resource
import subprocess
import sys
from pathlib import Path

from flwr.supercore.task_identity import TaskIdentity

from helpers.flower_loopback import Loopback, Parcel


class CrampedGrid(Loopback):
    """A grid on which one site runs out of memory in one round."""

    cramped = (1, 2)
    """The number of the client, and the round."""

    def _answer(self, number, node, message):
        kind = message.metadata.message_type
        place = (node.config["client"], kind == "train" and message.content["facts"]["round"])
        if place != self.cramped:
            return super()._answer(number, node, message)
        sent = pickle.dumps((number, node, self.run_config, Parcel.pack(message)))
        command = [sys.executable, "-m", "helpers.cramped_site"]
        tests = Path(__file__).parents[1]
        done = subprocess.run(
            command, input=sent, capture_output=True, cwd=tests, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return pickle.loads(done.stdout).unpack()


def answer(sent):
    number, node, run_config, parcel = pickle.loads(sent)
    for name in ("_task_id", "_run_id", "_node_id"):
        setattr(TaskIdentity, name, 1)
    grid = Loopback({number: node}, run_config)
    message = parcel.unpack()
    grid._answer(number, node, message)  # what is imported on first use
    ctypes.CDLL(None).malloc_trim(0)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + 2**20, hard))
    return pickle.dumps(Parcel.pack(grid._answer(number, node, message)))


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        reply = answer(sys.stdin.buffer.read())
    sys.stdout.buffer.write(reply)
