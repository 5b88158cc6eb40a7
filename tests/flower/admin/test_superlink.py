"""What fedbb changes in Flower's SuperLink."""

import asyncio
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import httpx
import pytest
from flwr.supercore import sql_mixin

from fedbb.flower import internals
from fedbb.flower.admin.local import free_port
from fedbb.flower.admin.processes import environment
from fedbb.flower.admin.superlink import (
    LONGEST_BODY,
    MOST_FROM_ALL,
    MOST_FROM_ONE,
    LocalOnly,
    is_allowed,
)
from helpers.cover import few


def test_requests_wait_a_minute_for_the_database_and_all_else_stays(monkeypatch):
    before = dict(sql_mixin.SQLITE_PRAGMAS)
    monkeypatch.setattr(sql_mixin, "SQLITE_PRAGMAS", sql_mixin.SQLITE_PRAGMAS)
    internals.wait_for_database()
    with closing(sqlite3.connect(":memory:")) as database:
        sql_mixin._set_sqlite_pragmas(database, None)
        assert database.execute("PRAGMA busy_timeout").fetchone() == (60000,)
    after = dict(sql_mixin.SQLITE_PRAGMAS)
    assert after.pop("busy_timeout") != before.pop("busy_timeout")
    assert after == before


@pytest.mark.parametrize(
    ("path", "client", "allowed"),
    [
        ("/v1/fleet/pull-messages", "203.0.113.5", True),
        ("/health", "203.0.113.5", True),
        ("/v1/control/start-run", "203.0.113.5", False),
        ("/v1/control/start-run", "127.0.0.1", True),
        ("/v1/control/start-run", "::1", True),
        ("/v1/control/start-run", "::ffff:127.0.0.1", True),
        ("/v1/control/start-run", "::ffff:203.0.113.5", False),
        ("/v1/control/start-run", "10.0.0.1", True),  # the server's own address
        ("/v1/runtime/acquire-task", "203.0.113.5", False),
        ("/v1/fleetish", "203.0.113.5", False),
        ("/healthy", "203.0.113.5", False),
        ("/docs", "203.0.113.5", False),
        ("/v1/control/start-run", "testclient", False),
    ],
)
def test_other_machines_reach_the_interface_for_nodes_only(path, client, allowed):
    scope = {"type": "http", "path": path, "client": (client, 9), "server": ("10.0.0.1", 8443)}
    assert is_allowed(scope) == allowed


def test_who_hides_where_they_call_from_is_refused():
    assert not is_allowed({"type": "http", "path": "/docs", "client": None, "server": None})
    assert not is_allowed({"type": "websocket", "path": "/health", "client": None, "server": None})


@pytest.mark.parametrize("name", [b"X-Forwarded-For", b"forwarded", b"x-real-ip"])
def test_who_calls_through_a_proxy_is_not_on_this_machine_whatever_the_headers_say(name):
    scope = {"type": "http", "client": ("127.0.0.1", 9), "server": ("127.0.0.1", 8443)}
    said = {"headers": [(b"host", b"localhost"), (name, b"127.0.0.1")]}
    assert is_allowed({**scope, "path": "/v1/control/start-run", "headers": said["headers"][:1]})
    assert not is_allowed({**scope, **said, "path": "/v1/control/start-run"})
    assert is_allowed({**scope, **said, "path": "/v1/fleet/pull-messages"})


BELIEVING = """
import sys, uvicorn
from fedbb.flower.admin import superlink
from flwr.superlink import extensions
from flwr.superlink.cli import flower_superlink  # before it is replaced

async def application(scope, receive, send):
    assert scope["type"] == "http"
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message["body"]), message["more_body"]
    headers = [(b"read", b"%d" % length)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": scope["client"][0].encode()})

def serve():
    (gate, *_) = extensions.get_middleware()
    app = gate.cls(application, *gate.args, **gate.kwargs)
    uvicorn.run(app, port=int(sys.argv[1]), lifespan="off")

import flwr.superlink.cli
flwr.superlink.cli.flower_superlink = serve
superlink.main()
"""


@pytest.fixture
def server(tmp_path):
    """The outermost gate in front of an open application, for an operator who trusts proxies."""
    port = free_port("127.0.0.1")
    command = [sys.executable, "-c", BELIEVING, str(port)]
    variables = {**environment(tmp_path), "FORWARDED_ALLOW_IPS": "*"}
    with subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL) as process:
        try:
            limit = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert process.poll() is None
                    assert time.monotonic() < limit
                    time.sleep(0.1)
            address = f"http://127.0.0.1:{port}"
            with httpx.Client(base_url=address, timeout=30, trust_env=False) as client:
                yield client
        finally:
            process.kill()


def test_a_server_that_was_told_to_believe_proxies_believes_none(server):
    assert server.post("/v1/control/start-run").text == "127.0.0.1"
    for headers in ({"X-Forwarded-For": "127.0.0.1"}, {"X-Forwarded-For": "203.0.113.5"}):
        assert server.post("/v1/control/start-run", headers=headers).status_code == 404
        assert server.post("/v1/fleet/x", headers=headers).text == "127.0.0.1"


MEGABYTE = bytes(2**20)


def chunks(number, sent):
    for _ in range(number):
        sent.append(1)
        yield MEGABYTE


def test_a_body_that_is_too_long_is_rejected_before_it_is_read(server):
    begin = "POST /v1/fleet/x HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n"
    for length, status in ((1_200_000_000, b"413"), (LONGEST_BODY + 1, b"413")):
        with socket.create_connection((server.base_url.host, server.base_url.port), 30) as line:
            line.sendall(begin.format(length).encode())  # and nothing of the body
            assert line.recv(1000).split()[1] == status
    whole = server.post("/v1/fleet/x", content=bytes(LONGEST_BODY))
    assert whole.headers["read"] == str(LONGEST_BODY)


@pytest.mark.parametrize("path", few(["/v1/fleet/x", "/v1/control/x", "/health"], 1))
def test_a_body_without_a_length_is_cut_off(server, path):
    sent = []
    try:
        status = server.post(path, content=chunks(1200, sent)).status_code
    except httpx.TransportError:  # the server closed the connection while the body was sent
        status = 413
    assert status == 413
    assert len(sent) < 200
    assert server.post(path, content=chunks(60, [])).headers["read"] == str(60 * 2**20)


LONGEST = bytes(LONGEST_BODY)  # one for all: nothing here copies it


class Gate:
    """The gate in front of an application that reads bodies and answers when it may."""

    def __init__(self):
        self.may_answer = asyncio.Event()
        self.gate = LocalOnly(self.application)

    async def application(self, scope, receive, send):
        while (await receive())["more_body"]:
            pass
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def post(self, host, *parts):
        """Return the status of a request whose body comes in these parts."""
        left, statuses = list(parts), []

        async def receive():
            await asyncio.sleep(0)
            body = left.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(left)}

        async def send(message):
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        scope = {
            "type": "http",
            "path": "/v1/fleet/push-object",
            "client": (host, 9),
            "server": ("10.0.0.1", 8443),
        }
        await self.gate(scope, receive, send)
        return statuses

    async def hold(self, host, number=1):
        """Send long bodies whose answers wait, and return their tasks."""
        tasks = [asyncio.create_task(self.post(host, LONGEST)) for _ in range(number)]
        for _ in range(10):
            await asyncio.sleep(0)
        return tasks


def test_bodies_in_work_from_one_machine_are_bounded_and_others_are_served():
    async def scenario():
        server = Gate()
        waiting = await server.hold("203.0.113.5", MOST_FROM_ONE // LONGEST_BODY)
        assert await server.post("203.0.113.5", b"x") == [503]
        assert await server.post("203.0.113.5", b"", b"x", b"y") == [503]
        waiting += await server.hold("203.0.113.6")
        assert not any(task.done() for task in waiting)
        server.may_answer.set()
        assert await asyncio.gather(*waiting) == [[200]] * len(waiting)
        assert await server.post("203.0.113.5", LONGEST) == [200]
        assert not server.gate._in_work

    asyncio.run(scenario())


def test_bodies_in_work_from_all_machines_are_bounded():
    async def scenario():
        server = Gate()
        for number in range(MOST_FROM_ALL // LONGEST_BODY):
            await server.hold("127.0.0.1" if number % 2 else f"203.0.113.{number}")
        assert await server.post("203.0.113.200", b"x") == [503]
        assert await server.post("127.0.0.1", b"x") == [503]
        server.may_answer.set()
        await asyncio.sleep(0)
        assert await server.post("203.0.113.200", b"x") == [200]

    asyncio.run(scenario())


def test_a_body_that_was_cut_off_counts_no_longer():
    async def scenario():
        server = Gate()
        server.may_answer.set()
        for _ in range(20):
            assert await server.post("203.0.113.5", LONGEST, b"x") == [413]
        assert await server.post("203.0.113.5", LONGEST) == [200]

    asyncio.run(scenario())
