"""Flower's SuperLink, with its control and runtime interfaces closed to other machines.

Flower serves everything at one port and authenticates only nodes: any machine that reaches the
port could register nodes, start runs, which means to run code at the sites, or take over a run.
Here other machines can use the interface for nodes and nothing else. The file is run as a
module and imports no torch: a server that only passes on messages needs none.
"""

from __future__ import annotations

import ipaddress
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fedbb.flower import internals

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

FOR_NODES = "/v1/fleet/"
HEALTH = "/health"
LONGEST_BODY = 64 * 2**20
"""Most bytes of a request's body. Flower reads a body before it asks whose it is, and cuts arrays
into objects of 5 MiB, one a request."""

MOST_FROM_ONE = 2 * LONGEST_BODY
"""Most bytes of bodies that another machine may have in work. A site sends two objects at once."""

MOST_FROM_ALL = 16 * LONGEST_BODY
"""Most bytes of bodies in work. A site that is rejected for them tries again later."""

TOO_LONG = b"the body is longer than %d bytes\n" % LONGEST_BODY
TOO_MUCH = b"too many bodies at once; try again later\n"

PASSED_ON = (b"forwarded", b"x-forwarded-for", b"x-real-ip")
"""Headers of a proxy, which names in them where a request came from."""

ROUTINE = ("ControlServicer.ListRuns", "ControlServicer.ListNodes", "/v1/control/list-")
"""Requests that a monitored run repeats all the time; they would fill the log."""


class LocalOnly:
    """Middleware that limits other machines to the interface for nodes, and all to short bodies.

    Flower holds a body in memory until the request is answered, and reads it before it asks whose
    it is. So the bodies in work are bounded too.
    """

    def __init__(self, app: App) -> None:
        self.app = app
        self._in_work: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] != "lifespan" and not is_allowed(scope):
            await _reject(send, 404, b"closed to other machines\n")
        elif scope["type"] != "http":
            await self.app(scope, receive, send)
        elif declared_length(scope) > LONGEST_BODY:
            await _reject(send, 413, TOO_LONG)
        else:
            await self._pass_bounded(scope, receive, send)

    async def _pass_bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and cut off a body that turns out too long or one too many."""
        host = scope["client"][0] if scope.get("client") else ""
        length, answered = 0, False
        fault: tuple[int, bytes] | None = None

        async def receive_bounded() -> Any:
            nonlocal length, fault
            message = await receive()
            more = len(message.get("body", b""))
            length += more
            self._in_work[host] += more
            if length > LONGEST_BODY:
                fault = 413, TOO_LONG
            elif more and self._is_full(host):
                fault = 503, TOO_MUCH
            if fault:
                raise _BodyTooLongError
            return message

        async def send_noted(message: Any) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            await self.app(scope, receive_bounded, send_noted)
        except Exception:
            # The reader of the body may wrap the error in its own.
            if fault is None or answered:
                raise
            await _reject(send, *fault)
        finally:
            self._in_work[host] -= length
            self._in_work += Counter()  # without the hosts that have nothing in work

    def _is_full(self, host: str) -> bool:
        """Tell whether the bodies in work, of this host or of all, have become too many."""
        from_one = 0 if is_loopback(host) else self._in_work[host]
        return from_one > MOST_FROM_ONE or self._in_work.total() > MOST_FROM_ALL


class _BodyTooLongError(Exception):
    """A body is longer than LONGEST_BODY, or one too many."""


async def _reject(send: Send, status: int, reason: bytes) -> None:
    # Without this header uvicorn keeps a connection open whose body was not read.
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": reason})


def declared_length(scope: Scope) -> int:
    """Return the length that a request declares for its body, 0 if it declares none."""
    values = [
        value for name, value in scope.get("headers", ()) if name.lower() == b"content-length"
    ]
    return max((int(value) for value in values if value.isdigit()), default=0)


def is_allowed(scope: Scope) -> bool:
    """Tell whether a request may pass: from nodes always, others only from this machine.

    Only the socket's own peer is believed. A request that a proxy passed on came from elsewhere,
    whatever its headers say.
    """
    if scope["type"] == "http":
        path = str(scope["path"])
        if path == HEALTH or path.startswith(FOR_NODES):
            return True
    if any(name.lower() in PASSED_ON for name, _ in scope.get("headers", ())):
        return False
    client, server = scope.get("client"), scope.get("server")
    if not client or not server:
        return False
    # A local program that connects to an address of this machine has that address itself.
    return is_loopback(client[0]) or client[0] == server[0]


def is_loopback(host: str) -> bool:
    """Tell whether an address is this machine's own."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Tell whether a line belongs into the log."""
    return not any(words in record.getMessage() for words in ROUTINE)


def main() -> None:
    """Start the SuperLink."""
    from starlette.middleware import Middleware

    os.environ["FORWARDED_ALLOW_IPS"] = ""  # uvicorn is to believe no proxy about its peers
    internals.set_middleware(Middleware(LocalOnly))
    internals.wait_for_database()
    for name in ("flwr", "uvicorn.access"):
        logging.getLogger(name).addFilter(is_worth_logging)
    internals.flower_superlink()


if __name__ == "__main__":
    main()
