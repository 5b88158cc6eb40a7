"""A site's worker: a process that stays and runs the client app for one message after another.

The SuperNode's process starts it, see `fedbb.flower.admin.supernode`, and passes it tasks over a
socket. The first task decides which app the process serves. If that is fedbb's own, torch, the
network and the site's data stay loaded for the next message. Any other app gets a process for each
message, as Flower's own would.
"""

from __future__ import annotations

import os
import sys
import threading
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from flwr.app import Error, Message
from flwr.clientapp import ClientApp

from fedbb.flower import internals
from fedbb.flower.app.client import app as own_app
from fedbb.flower.app.frames import RESIDENT, SINGLE_USE, pack_reply, receive_frames, send_frames
from fedbb.flower.app.prepared_data import KEPT
from fedbb.flower.app.site import OPEN_SITES


def main() -> None:
    """Serve tasks from the socket whose number is the first argument, until its other end closes.

    The whole process ends then, even while it trains.
    """
    connection = Connection(int(sys.argv[1]))
    tasks: SimpleQueue[list[bytes]] = SimpleQueue()

    def read() -> None:
        try:
            while True:
                tasks.put(receive_frames(connection))
        except (EOFError, OSError):
            os._exit(0)

    OPEN_SITES.limit = KEPT
    threading.Thread(target=read, daemon=True).start()
    apps: dict[str, ClientApp] = {}
    while True:
        reply = answer(tasks.get(), apps)
        send_frames(connection, reply)
        if reply[0] != RESIDENT:
            return


def answer(task: list[bytes], apps: dict[str, ClientApp]) -> list[bytes]:
    """Return the reply to a task.

    Args:
        task: Flower's input of the task, the id of its message, and id and content in turn of each
            object that the message consists of.
        apps: The app that this process serves by the hash of its bundle; it is loaded by the first
            task.

    Returns:
        `RESIDENT` or `SINGLE_USE`, the context after the task, and the reply as `pack_reply`
        gives it.

    Raises:
        ValueError: The task belongs to another app.
    """
    given = internals.PullTaskInputResponse.FromString(task[0])
    context = internals.context_from_proto(given.context)
    identity = task[1].decode()
    contents = {
        name.decode(): content for name, content in zip(task[2::2], task[3::2], strict=True)
    }
    message = internals.inflate_object_from_contents(identity, contents)
    # The id of a message is that of its object, which does not contain it.
    message.metadata.__dict__["_message_id"] = identity
    found: ClientApp | None = None
    try:
        found = _load(given, apps)
        reply = found(message=message, context=context)
    except Exception as error:
        # fedbb's app turns its errors into replies itself; this is another app, or none.
        code = internals.ErrorCode.CLIENT_APP_RAISED_EXCEPTION
        if found is None:
            code = internals.ErrorCode.LOAD_CLIENT_APP_EXCEPTION
        reply = Message(Error(code, f"{type(error)}:<'{error}'>"), reply_to=message)
    kept = internals.context_to_proto(context).SerializeToString()
    return [RESIDENT if found is own_app else SINGLE_USE, kept, *pack_reply(reply)]


def _load(given: Any, apps: dict[str, ClientApp]) -> ClientApp:
    run = internals.run_from_proto(given.run)
    if given.fab.hash_str not in apps:
        if apps:
            raise ValueError("this process serves another app")
        internals.install_from_fab(given.fab.content, skip_prompt=True)
        load = internals.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
        apps[given.fab.hash_str] = load(run.fab_id, run.fab_version, given.fab.hash_str)
    return apps[given.fab.hash_str]


if __name__ == "__main__":
    main()
