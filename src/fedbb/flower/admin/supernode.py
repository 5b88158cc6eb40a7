"""Flower's SuperNode of a site, with a worker that stays between messages.

By default Flower starts a Python process for every message, which imports torch and opens the data
anew. Here the SuperNode runs with `--isolation process`, which starts nothing, and a thread of its
process takes the tasks, by the functions behind Flower's local interface for them. The interface
itself gives out tasks by a secret that nobody but the owner of the process can read. The thread
hands the tasks to the worker, see `fedbb.flower.app.worker`, and replies with an error at once if
the worker ends or takes too long. The file is run as a module by `fedbb flower join` and `up`.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from flwr.app import Error, Message

from fedbb.flower import internals
from fedbb.flower.app.frames import GRACE, RESIDENT, pack_reply, receive_frames, send_frames

log = logging.getLogger("fedbb")

WORKER = "fedbb.flower.app.worker"
OWN_APP = "fedbb/fedbb-app"
"""Flower's name of fedbb's app."""

FIRST_QUESTIONS = ("query.info", "query.number")
LONGEST_PREPARATION = 12 * 3600.0
"""Seconds in which a site must have prepared its data."""

CLIENT_APP = "flwr-clientapp"
"""Flower's name of a task for a client app."""

PULL_SECONDS = 60.0
"""Seconds in which a message must have come over from the SuperNode, which has received it."""


class Pauses:
    """How the SuperNode waits, in place of Flower's fixed sleeps of 3 s and 0.5 s.

    A site without a message asks the server again after a tenth of the time that it has waited so
    far, so that it adds at most that much to a round. It waits at least `SHORTEST` and at most as
    long as Flower would, and at least four times as long as the server took to respond: a server
    with many sites slows them down before it is overloaded.
    """

    SHORTEST = 0.1
    SHARE = 0.1
    COURTESY = 4.0

    def __init__(self) -> None:
        self.connected = threading.Event()
        """Set once the server has accepted the SuperNode."""
        self.message = threading.Event()
        """Set while a message waits for the worker."""
        self.reply = threading.Event()
        """Set when a reply is ready to be sent."""
        self._busy = self._woke = time.monotonic()

    def sleep(self, seconds: float, /) -> None:
        """Wait for a reply if Flower would sleep less than a second, otherwise for the server."""
        self.connected.set()
        if seconds < 1.0:
            self.message.set()
            self.reply.wait(seconds)
            self.reply.clear()
            self._busy = self._woke = time.monotonic()
        else:
            now = time.monotonic()
            time.sleep(self.pause(now - self._busy, now - self._woke, seconds))
            self._woke = time.monotonic()

    def pause(self, waited: float, response: float, longest: float) -> float:
        """Return the seconds until the server is asked again.

        Args:
            waited: seconds since the last message was done.
            response: seconds that the last request took.
            longest: seconds that Flower would sleep.
        """
        # The first request after a message comes after the reply was sent, which takes its time.
        courtesy = 0.0 if response >= waited else self.COURTESY * response
        return min(longest, max(self.SHORTEST, self.SHARE * waited, courtesy))


class WorkerLostError(Exception):
    """The worker ended, or was ended, before it replied."""


class Worker:
    """The worker process of a site, which is started again whenever it ends."""

    def __init__(self) -> None:
        self.app = ""
        self._start()

    def ask(self, app: str, task: list[bytes], seconds: float) -> list[bytes]:
        """Return the reply to a task of an app, given by its hash, within some seconds.

        Raises:
            WorkerLostError: The process has ended, or had to be ended after that time.
        """
        if self.process.poll() is not None or self.app not in ("", app):
            self.restart()
        self.app = app
        overdue = threading.Event()
        timer = threading.Timer(seconds, self._end, [overdue])
        timer.daemon = True
        timer.start()
        try:
            send_frames(self._connection, task)
            reply = receive_frames(self._connection)
        except (EOFError, OSError):
            code = self.process.wait()
            self.restart()
            if overdue.is_set():
                raise WorkerLostError(f"it did not end within {seconds:.0f} s") from None
            raise WorkerLostError(f"its process ended with code {code}") from None
        finally:
            timer.cancel()
        if reply[0] != RESIDENT:
            self.restart()
        return reply[1:]

    def restart(self) -> None:
        """End the process and start another."""
        self.process.kill()
        self.process.wait()
        self._connection.close()
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-P", "-m", WORKER, str(number)]
            self.process = subprocess.Popen(command, pass_fds=[number], stdin=subprocess.DEVNULL)
        self._connection = Connection(ours.detach())
        self.app = ""

    def _end(self, overdue: threading.Event) -> None:
        overdue.set()
        self.process.kill()


class TaskLoop:
    """Takes the tasks of the SuperNode of this process, and returns the worker's replies.

    Args:
        pauses: how the SuperNode waits.
    """

    def __init__(self, pauses: Pauses) -> None:
        self.pauses = pauses
        self._state: Any = None

    def receive(self, state: Any) -> None:
        """Take the SuperNode's state, in which its tasks are."""
        self._state = state

    def run(self) -> None:
        """Do tasks for as long as the process lives, from when the server accepts the site."""
        self.pauses.connected.wait()
        worker = Worker()
        while True:
            self.pauses.message.wait()
            self.pauses.message.clear()
            try:
                if (task := internals.NodeTask.acquire(self._state, CLIENT_APP)) is not None:
                    self._do(task, worker)
            except Exception:
                # Without a reply Flower reports the client app as crashed after a minute.
                log.exception("a message could not be handled")

    def _do(self, task: internals.NodeTask, worker: Worker) -> None:
        """Have the worker do one task."""
        with _alive(task):
            given = task.call("pull_task_input", internals.PullTaskInputRequest())
            pulled = task.call("pull_messages", internals.PullAppMessagesRequest())
            if not pulled.messages_list:
                raise RuntimeError("there is no message for the task")
            message = internals.message_from_proto(pulled.messages_list[0])
            parts = [given.SerializeToString(), *_pull(task, given, pulled)]
            metadata = message.metadata
            seconds = time_limit(metadata.message_type, metadata.ttl, given.run.fab_id)
            status, details, context = internals.SubStatus.COMPLETED, "", given.context
            try:
                kept, *reply = worker.ask(given.fab.hash_str, parts, seconds)
                context = type(given.context).FromString(kept)
            except WorkerLostError as error:
                status, details = internals.SubStatus.FAILED, str(error)
                log.warning("the worker was lost and is started again: %s", error)
                code = internals.ErrorCode.CLIENT_APP_CRASHED
                reply = pack_reply(Message(Error(code, details), reply_to=message))
            _push(task, given, reply)
            self.pauses.reply.set()
            output = internals.PushTaskOutputRequest(
                context=context, sub_status=status, details=details
            )
            task.call("push_task_output", output)


def time_limit(kind: str, ttl: float, app: str) -> float:
    """Return the seconds that a worker may take for a message.

    They count from when the message arrived, which is after the server began to wait: a reply of
    fedbb's app that would come later is not accepted any more. The first question of a run has the
    data prepared, which goes on for the next one even if the server has given up on this one.
    """
    if app != OWN_APP:
        return 0.9 * ttl
    return LONGEST_PREPARATION if kind in FIRST_QUESTIONS else max(ttl - GRACE, 1.0)


@contextmanager
def _alive(task: internals.NodeTask) -> Iterator[None]:
    """Report to the SuperNode that a task goes on."""

    def report() -> bool:
        task.prolong()
        return True

    sender = internals.HeartbeatSender(report)
    sender.start()
    try:
        yield
    finally:
        sender.stop()


def _pull(task: internals.NodeTask, given: Any, pulled: Any) -> list[bytes]:
    """Return the id of a task's message, and id and content in turn of each of its objects."""
    node, run = internals.NodeProto(node_id=given.context.node_id), given.run.run_id
    tree = pulled.message_object_trees[0]
    contents = internals.pull_objects(
        [part.object_id for part in internals.iterate_object_tree(tree)],
        internals.make_pull_object_fn_protobuf(partial(task.call, "pull_object"), node, run),
        initial_backoff=internals.BACKOFF_SECONDS,
        max_time=PULL_SECONDS,
    )
    internals.make_confirm_message_received_fn_protobuf(
        partial(task.call, "confirm_message_received"), node, run
    )(tree.object_id)
    parts = [part for key, content in contents.items() for part in (key.encode(), content)]
    return [tree.object_id.encode(), *parts]


def _push(task: internals.NodeTask, given: Any, reply: list[bytes]) -> None:
    """Give a reply, as `pack_reply` gives it, to the SuperNode."""
    request = internals.PushAppMessagesRequest(
        messages_list=[internals.MessageProto.FromString(reply[0])],
        message_object_trees=[internals.ObjectTree.FromString(reply[1])],
    )
    pushed = task.call("push_messages", request)
    wanted = set(pushed.objects_to_push)
    push = internals.make_push_object_fn_protobuf(
        partial(task.call, "push_object"),
        internals.NodeProto(node_id=given.context.node_id),
        run_id=given.run.run_id,
        session_id=pushed.session_id,
    )
    for key, content in zip(reply[2::2], reply[3::2], strict=True):
        if key.decode() in wanted:
            push(key.decode(), content)


def write_secret(path: Path) -> bytes:
    """Write a new secret into a file that only its owner can read, and return it."""
    secret = secrets.token_bytes(32)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)
    return secret


def main() -> None:
    """Start the SuperNode with the arguments of `flower-supernode`, and the worker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--superexec-auth-secret-file", type=Path, required=True)
    options, _ = parser.parse_known_args()
    write_secret(options.superexec_auth_secret_file)
    pauses = Pauses()
    internals.set_sleeper(pauses)
    loop = TaskLoop(pauses)
    internals.on_node_state(loop.receive)
    threading.Thread(target=loop.run, daemon=True).start()
    internals.flower_supernode()


if __name__ == "__main__":
    main()
