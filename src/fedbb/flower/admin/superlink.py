"""Flower's SuperLink, with its control and runtime interfaces closed to other machines.

Flower serves everything at one port and authenticates only nodes: any machine that reaches the
port could register nodes, start runs, which means to run code at the sites, or take over a run.
Here other machines can use the interface for nodes and nothing else. The file is run as a
module and imports no torch: a server that only passes on messages needs none.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from starlette.requests import Request
from starlette.responses import Response

from fedbb.flower import internals

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
FindNode = Callable[[Scope], int | None]

FOR_NODES = "/v1/fleet/"
PUSH_OBJECT = "/v1/fleet/push-object"
HEALTH = "/health"

SHORT_BODY = 64 * 2**10
"""Most bytes of a body that another machine may send without the signature of a registered node.
Flower reads a body, and parses it, before it asks whose it is."""

LONGEST_BODY = 64 * 2**20
"""Most bytes of a body. Flower cuts arrays into objects of 5 MiB, one a request."""

LONGEST_MESSAGE = 4 * 2**20
"""Most bytes of a node's body that is no object: some dozens for each object of a message."""

PARSED = 32
"""Bytes of memory for each byte of such a body: an empty record has two, and 56 once parsed."""

MOST_FROM_ONE = 2 * LONGEST_BODY
"""Most bytes that the bodies of a node may have in work. A node sends two objects at once."""

MOST_FROM_ALL = 16 * LONGEST_BODY
"""Most bytes that the bodies of all nodes may have in work."""

BODY_SECONDS = 600.0
"""Seconds in which a body must arrive: the other end of a connection may be gone."""

PASSED_ON = (b"forwarded", b"x-forwarded-for", b"x-real-ip")
"""Headers of a proxy, which names in them where a request came from."""

ROUTINE = ("ControlServicer.ListRuns", "ControlServicer.ListNodes", "/v1/control/list-")
"""Requests that a monitored run repeats all the time; they would fill the log."""


@dataclass(frozen=True)
class _Rejection:
    """Why a request is rejected. A node tries again after 503, and after nothing else."""

    status: int
    reason: str


CLOSED = _Rejection(404, "closed to other machines")
UNSIGNED = _Rejection(401, f"only registered nodes send more than {SHORT_BODY} bytes")
TOO_LONG = _Rejection(413, "the body is too long")
TOO_SLOW = _Rejection(408, f"the body did not arrive within {BODY_SECONDS:g} s")
TOO_MUCH = _Rejection(503, "too many bodies at once; try again later")


class LocalOnly:
    """Middleware that limits other machines to the interface for nodes, and bodies to their bounds.

    Flower holds a body in memory until the request is answered. What users of this machine send is
    bounded one by one only: they control the federation anyway.

    Args:
        app: what requests are passed on to.
        find_node: returns the registered node that signed a request, if one did.
    """

    def __init__(self, app: App, find_node: FindNode) -> None:
        self.app = app
        self.find_node = find_node
        self._in_work: Counter[int] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or reject it."""
        if scope["type"] != "lifespan" and not is_allowed(scope):
            await _reject(send, CLOSED)
        elif scope["type"] != "http":
            await self.app(scope, receive, send)
        else:
            await self._pass_bounded(scope, receive, send)

    async def _pass_bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, unless its declared length or its body breaks a bound."""
        body = _Body(scope, receive, self)
        answered = False

        async def send_noted(message: Any) -> None:
            nonlocal answered
            # Flower answers an interrupted body with an error after which nodes do not try again.
            if body.fault is None or answered:
                answered = True
                await send(message)

        try:
            await body.begin()
            await self.app(scope, body.receive, send_noted)
        except Exception:
            if body.fault is None or answered:
                raise
        finally:
            body.end()
        if body.fault is not None and not answered:
            await _reject(send, body.fault)

    def charge(self, node: int, amount: int) -> bool:
        """Add to a node's bytes in work, and tell whether they are within the bounds."""
        self._in_work[node] += amount
        from_all = self._in_work.total()
        return self._in_work[node] <= MOST_FROM_ONE and from_all <= MOST_FROM_ALL

    def discharge(self, node: int, amount: int) -> None:
        """Take from a node's bytes in work."""
        self._in_work[node] -= amount
        self._in_work += Counter()  # without the nodes that have nothing in work


class _BodyError(Exception):
    """The reading of a body was stopped."""


class _Body:
    """The body of a request, which is read within the bounds."""

    def __init__(self, scope: Scope, receive: Receive, gate: LocalOnly) -> None:
        self.fault: _Rejection | None = None
        self._scope, self._receive, self._gate = scope, receive, gate
        self._end: float | None = asyncio.get_running_loop().time() + BODY_SECONDS
        self._length = self._charged = 0
        self._node: int | None = None
        path = str(scope["path"])
        self._is_local = not path.startswith(FOR_NODES) and path != HEALTH
        is_long = self._is_local or path == PUSH_OBJECT
        self._longest = LONGEST_BODY if is_long else LONGEST_MESSAGE
        self._factor = 1 if is_long else PARSED

    async def begin(self) -> None:
        """Reject a body by the length that it declares, before it is read."""
        await self._check(declared_length(self._scope))

    async def receive(self) -> Any:
        """Return the next part of the body."""
        try:
            async with asyncio.timeout_at(self._end):
                message = await self._receive()
        except TimeoutError:
            self._fail(TOO_SLOW)
        if not message.get("more_body", False):
            self._end = None  # another question waits for the end of the connection
        more = len(message.get("body", b""))
        self._length += more
        await self._check(self._length)
        return message

    def end(self) -> None:
        """Stop counting the body."""
        if self._node is not None:
            self._gate.discharge(self._node, self._charged)

    async def _check(self, length: int) -> None:
        if self._is_local:
            if length > self._longest:
                self._fail(TOO_LONG)
        elif length > SHORT_BODY:
            if self._node is None:
                await self._identify()
            if length > self._longest:
                self._fail(TOO_LONG)
            self._charge()

    async def _identify(self) -> None:
        self._node = await asyncio.to_thread(self._gate.find_node, self._scope)
        if self._node is None:
            self._fail(UNSIGNED)

    def _charge(self) -> None:
        """Count what was read of the body."""
        assert self._node is not None
        more = self._factor * self._length - self._charged
        self._charged += more
        if not self._gate.charge(self._node, more):
            self._fail(TOO_MUCH)

    def _fail(self, fault: _Rejection) -> NoReturn:
        # Not the record itself is raised: it would keep the frames, and the body, in memory.
        self.fault = fault
        raise _BodyError


class Shortcut:
    """A part of Flower's middleware, without what it costs where that brings nothing.

    Flower passes every request through all parts, most of which do nothing for most paths. Each
    runs the rest in a task of its own and takes the answer from a stream, which together was more
    than a third of the SuperLink's time. A request that does not concern a part goes past it here,
    and an answer that comes as a whole is taken as a whole.

    Args:
        app: what requests are passed on to.
        make: makes the part around an application.
        concerned: beginnings of the paths that concern the part.
        unary: the paths whose answers are no streams.
    """

    def __init__(
        self,
        app: App,
        make: Callable[[App], Any],
        concerned: tuple[str, ...],
        unary: frozenset[str],
    ) -> None:
        self.app = app
        self.part = make(app)
        self.concerned = concerned
        self.unary = unary

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, through the part if it concerns it."""
        if scope["type"] != "http" or not scope["path"].startswith(self.concerned):
            await self.app(scope, receive, send)
        elif scope["path"] in self.unary:
            await self._pass_whole(scope, receive, send)
        else:
            await self.part(scope, receive, send)

    async def _pass_whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(request: Request) -> Response:
            found = _Answer()
            await self.app(request.scope, receive, found.take)
            return found.response()

        response = await self.part.dispatch_func(Request(scope, receive), answer)
        await response(scope, receive, send)


class _Answer:
    """The answer of an application, which comes in messages."""

    def __init__(self) -> None:
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []

    async def take(self, message: Any) -> None:
        """Take the next message of the answer."""
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], message["headers"]
        else:
            self._parts.append(message.get("body", b""))

    def response(self) -> Response:
        """Return the whole answer."""
        if not self._status:
            raise RuntimeError("the application gave no answer")
        response = Response(b"".join(self._parts), self._status)
        response.raw_headers = list(self._headers)
        return response


async def _reject(send: Send, why: _Rejection) -> None:
    # Without this header uvicorn keeps a connection open whose body was not read.
    headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": why.status, "headers": headers})
    await send({"type": "http.response.body", "body": why.reason.encode() + b"\n"})


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
    internals.set_middleware(Middleware(LocalOnly, internals.find_node))
    unary = internals.unary_paths()
    internals.wrap_middleware(partial(Shortcut, unary=unary))
    internals.wait_for_database()
    for name in ("flwr", "uvicorn.access"):
        logging.getLogger(name).addFilter(is_worth_logging)
    internals.flower_superlink()


if __name__ == "__main__":
    main()
