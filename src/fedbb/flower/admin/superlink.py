"""Flower's SuperLink, with its control and runtime interfaces closed to other machines.

Everything goes through one port, and Flower asks only nodes for a key: whoever reaches the port
could register nodes, start runs, which is to run code at the sites, or take over a run's work. Here
other machines get the interface for nodes and nothing else. Run as a script, it imports no fedbb:
a server that only passes messages on needs no torch.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

FOR_NODES = "/v1/fleet/"
HEALTH = "/health"
ROUTINE = ("ControlServicer.ListRuns", "ControlServicer.ListNodes", "/v1/control/list-")
"""What whoever watches a run asks for all the time; the log would tell of little else."""


class FromHere:
    """Lets other machines speak to the interface for nodes only."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan" or is_allowed(scope):
            await self.app(scope, receive, send)
            return
        await send(
            {
                "type": "http.response.start",
                "status": 404,
                "headers": [(b"content-type", b"text/plain")],
            }
        )
        await send({"type": "http.response.body", "body": b"closed to other machines\n"})


def is_allowed(scope: Scope) -> bool:
    """Tell whether a request may pass: those of nodes may, others only from this machine."""
    if scope["type"] == "http":
        path = str(scope["path"])
        if path == HEALTH or path.startswith(FOR_NODES):
            return True
    client, server = scope.get("client"), scope.get("server")
    if not client or not server:
        return False
    # A program of this machine that calls an address of its own comes from that address.
    return is_loopback(client[0]) or client[0] == server[0]


def is_loopback(host: str) -> bool:
    """Tell whether an address is this machine's own."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def is_worth_telling(record: logging.LogRecord) -> bool:
    """Tell whether a line belongs into the log."""
    return not any(words in record.getMessage() for words in ROUTINE)


def wait_for_database() -> None:
    """Let requests wait a minute for the database, as long as a node is held for connected.

    Flower gives up after five seconds. With ten nodes on two cores that was too short: a node's
    answer was lost for good, and another node ended.
    """
    from flwr.supercore import sql_mixin
    from flwr.supercore.constant import SQLITE_PRAGMAS

    where: Any = sql_mixin
    where.SQLITE_PRAGMAS = tuple({**dict(SQLITE_PRAGMAS), "busy_timeout": "60000"}.items())


def main() -> None:
    """Start the SuperLink."""
    from flwr.superlink import extensions
    from flwr.superlink.cli import flower_superlink
    from starlette.middleware import Middleware

    others = extensions.get_middleware

    def outermost() -> tuple[Middleware, ...]:
        return (Middleware(FromHere), *others())

    extensions.get_middleware = outermost
    wait_for_database()
    for name in ("flwr", "uvicorn.access"):
        logging.getLogger(name).addFilter(is_worth_telling)
    flower_superlink()


if __name__ == "__main__":
    main()
