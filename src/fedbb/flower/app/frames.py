"""What a server, a site's SuperNode and its worker process agree on, and how the two talk."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.connection import Connection

from flwr.app import Message

from fedbb.flower import internals

RESIDENT, SINGLE_USE = b"resident", b"single use"
"""Whether a worker takes another task after its reply."""


GRACE = 300.0
"""Seconds that a message outlives its deadline, so that differing clocks do not lose it."""


def send_frames(connection: Connection, frames: Sequence[bytes]) -> None:
    """Send a list of byte strings."""
    connection.send_bytes(str(len(frames)).encode())
    for frame in frames:
        connection.send_bytes(frame)


def receive_frames(connection: Connection) -> list[bytes]:
    """Return the next list of byte strings; EOFError if the other process has ended."""
    return [connection.recv_bytes() for _ in range(int(connection.recv_bytes()))]


def pack_reply(reply: Message) -> list[bytes]:
    """Return a reply as Flower sends it.

    First the message without its content, then its object tree, then id and content in turn of
    each object.
    """
    reply.metadata.__dict__["_message_id"] = reply.object_id
    bare = internals.message_to_proto(internals.remove_content_from_message(reply))
    with internals.no_object_id_recompute():
        tree = internals.get_object_tree(reply)
        objects = internals.get_all_nested_objects(reply)
        contents = [
            part for key, item in objects.items() for part in (key.encode(), item.deflate())
        ]
    return [bare.SerializeToString(), tree.SerializeToString(), *contents]
