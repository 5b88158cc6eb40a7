"""What fedbb changes in Flower's SuperLink."""

import asyncio
import socket
import sqlite3
import subprocess
import sys
import time
from base64 import b64encode
from contextlib import closing
from functools import partial
from importlib.metadata import version
from typing import get_type_hints

import httpx
import pytest
from fastapi.routing import iter_route_contexts
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore import sql_mixin
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import (
    generate_key_pairs,
    public_key_to_bytes,
    sign_message,
)
from flwr.superlink import extensions, main
from google.protobuf.message import Message as ProtoMessage
from starlette.requests import Request
from starlette.responses import Response

from fedbb.flower import internals
from fedbb.flower.admin import superlink
from fedbb.flower.admin.local import free_port
from fedbb.flower.admin.processes import environment
from fedbb.flower.admin.superlink import (
    LONGEST_BODY,
    LONGEST_MESSAGE,
    MOST_FROM_ALL,
    MOST_FROM_ONE,
    PARSED,
    PUSH_OBJECT,
    SHORT_BODY,
    LocalOnly,
    Shortcut,
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

def find_node(scope):
    return int(dict(scope["headers"]).get(b"node", 0)) or None

import flwr.superlink.cli
flwr.superlink.cli.flower_superlink = serve
superlink.internals.find_node = find_node
superlink.main()
"""
NODE = {"node": "7"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The outermost gate in front of an open application, for an operator who trusts proxies."""
    port = free_port("127.0.0.1")
    command = [sys.executable, "-c", BELIEVING, str(port)]
    variables = {**environment(tmp_path_factory.mktemp("flwr")), "FORWARDED_ALLOW_IPS": "*"}
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


@pytest.mark.parametrize(
    ("path", "node", "length", "status"),
    [
        (PUSH_OBJECT, "", 1_200_000_000, b"401"),
        (PUSH_OBJECT, "", SHORT_BODY + 1, b"401"),
        ("/health", "", SHORT_BODY + 1, b"401"),
        (PUSH_OBJECT, "Node: 7\r\n", 1_200_000_000, b"413"),
        (PUSH_OBJECT, "Node: 7\r\n", LONGEST_BODY + 1, b"413"),
        ("/v1/fleet/push-messages", "Node: 7\r\n", LONGEST_MESSAGE + 1, b"413"),
        ("/v1/control/start-run", "", LONGEST_BODY + 1, b"413"),
    ],
)
def test_a_body_that_is_declared_too_long_is_rejected_before_it_is_read(
    server, path, node, length, status
):
    begin = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{node}\r\n"
    with socket.create_connection((server.base_url.host, server.base_url.port), 30) as line:
        line.sendall(begin.encode())  # and nothing of the body
        assert line.recv(1000).split()[1] == status


@pytest.mark.parametrize(
    ("path", "headers", "length"),
    [
        (PUSH_OBJECT, {}, SHORT_BODY),
        (PUSH_OBJECT, NODE, LONGEST_BODY),
        ("/v1/fleet/push-messages", NODE, LONGEST_MESSAGE),
        ("/v1/control/start-run", {}, LONGEST_BODY),
    ],
)
def test_a_body_up_to_its_bound_is_passed_on(server, path, headers, length):
    whole = server.post(path, headers=headers, content=bytes(length))
    assert whole.headers["read"] == str(length)


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        (PUSH_OBJECT, {}, 401),
        ("/health", {}, 401),
        *few([(PUSH_OBJECT, NODE, 413), ("/v1/control/x", {}, 413)], 1),
    ],
)
def test_a_body_without_a_length_is_cut_off(server, path, headers, expected):
    sent = []
    try:
        status = server.post(path, headers=headers, content=chunks(1200, sent)).status_code
    except httpx.TransportError:  # the server closed the connection while the body was sent
        status = expected
    assert status == expected
    assert len(sent) < 200
    if headers:
        whole = server.post(path, headers=headers, content=chunks(60, []))
        assert whole.headers["read"] == str(60 * 2**20)


LONGEST = bytes(LONGEST_BODY)  # one for all: nothing here copies it


class Gate:
    """The gate in front of an application that reads bodies and answers when it may.

    The application answers an error of its reader itself, as Flower does.
    """

    def __init__(self):
        self.may_answer = asyncio.Event()
        self.gate = LocalOnly(self.application, lambda scope: scope["node"])
        self.read = 0

    async def application(self, scope, receive, send):
        status = 200
        try:
            while (message := await receive())["more_body"]:
                self.read += len(message["body"])
            await self.may_answer.wait()
        except Exception:
            status = 500
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def post(self, node, *parts, path=PUSH_OBJECT, host="203.0.113.5", ends=True):
        """Return the statuses that answer a request whose body comes in these parts."""
        left, statuses = list(parts), []

        async def receive():
            await asyncio.sleep(0 if left else 3600)
            return {
                "type": "http.request",
                "body": left.pop(0),
                "more_body": bool(left) or not ends,
            }

        async def send(message):
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        server = (host if host.startswith("127.") else "10.0.0.1", 8443)
        scope = {"type": "http", "path": path, "client": (host, 9), "server": server, "node": node}
        await self.gate(scope, receive, send)
        return statuses

    async def hold(self, node, number=1, **options):
        """Send long bodies whose answers wait, and return their tasks."""
        tasks = [asyncio.create_task(self.post(node, LONGEST, **options)) for _ in range(number)]
        while self.gate._in_work[node] < number * LONGEST_BODY:
            await asyncio.sleep(0.001)
        return tasks


def test_bodies_in_work_from_one_node_are_bounded_and_others_are_served():
    async def scenario():
        server = Gate()
        waiting = await server.hold(7, MOST_FROM_ONE // LONGEST_BODY)
        assert await server.post(7, bytes(SHORT_BODY), b"x") == [503]
        assert await server.post(7, b"", bytes(SHORT_BODY), b"x") == [503]
        waiting += await server.hold(8)
        assert not any(task.done() for task in waiting)
        server.may_answer.set()
        assert await server.post(7, bytes(SHORT_BODY)) == [200]  # a short one needs no key
        assert await asyncio.gather(*waiting) == [[200]] * len(waiting)
        assert await server.post(7, LONGEST) == [200]
        assert not server.gate._in_work

    asyncio.run(scenario())


def test_bodies_in_work_from_all_nodes_are_bounded_and_this_machine_is_served():
    async def scenario():
        server = Gate()
        for node in range(1, 1 + MOST_FROM_ALL // LONGEST_BODY):
            await server.hold(node)
        assert await server.post(200, bytes(SHORT_BODY), b"x") == [503]
        server.may_answer.set()
        local = {"path": "/v1/runtime/push-object", "host": "127.0.0.1"}
        assert await server.post(None, LONGEST, **local) == [200]
        await asyncio.sleep(0.01)
        assert await server.post(200, bytes(SHORT_BODY), b"x") == [200]

    asyncio.run(scenario())


@pytest.mark.parametrize("path", [PUSH_OBJECT, "/v1/fleet/push-messages", "/health"])
def test_who_signed_nothing_is_cut_off_early_and_holds_nothing(path):
    async def scenario():
        server = Gate()
        server.may_answer.set()
        parts = [bytes(SHORT_BODY // 2)] * 3
        assert await server.post(None, *parts, b"end", path=path) == [401]
        assert server.read == SHORT_BODY
        assert not server.gate._in_work

    asyncio.run(scenario())


def test_a_message_counts_as_what_it_takes_when_it_is_parsed():
    async def scenario():
        server = Gate()
        waiting = await server.hold(7)
        half = bytes(LONGEST_BODY // PARSED)
        options = {"path": "/v1/fleet/push-messages"}
        waiting.append(asyncio.create_task(server.post(7, half, **options)))
        while server.gate._in_work[7] < MOST_FROM_ONE:
            await asyncio.sleep(0.001)
        assert await server.post(7, bytes(SHORT_BODY + 1), **options) == [503]
        server.may_answer.set()
        assert await asyncio.gather(*waiting) == [[200], [200]]
        assert await server.post(7, bytes(LONGEST_MESSAGE), **options) == [200]
        assert await server.post(7, bytes(LONGEST_MESSAGE), b"x", **options) == [413]

    asyncio.run(scenario())


def test_a_body_that_was_cut_off_counts_no_longer():
    async def scenario():
        server = Gate()
        server.may_answer.set()
        for _ in range(20):
            assert await server.post(7, LONGEST, b"x") == [413]
        assert await server.post(7, LONGEST) == [200]

    asyncio.run(scenario())


def test_a_body_that_does_not_arrive_is_cut_off_and_counts_no_longer(monkeypatch):
    monkeypatch.setattr(superlink, "BODY_SECONDS", 0.05)

    async def scenario():
        server = Gate()
        assert await server.post(7, LONGEST, ends=False) == [408]
        assert await server.post(None, b"x", ends=False) == [408]
        assert not server.gate._in_work

    asyncio.run(scenario())


def test_who_waits_for_the_end_of_a_connection_waits_as_long_as_it_takes(monkeypatch):
    monkeypatch.setattr(superlink, "BODY_SECONDS", 0.05)
    ended = []

    async def application(scope, receive, send):
        await receive()
        listening = asyncio.create_task(receive())
        await asyncio.wait([listening], timeout=0.2)
        ended.append(listening.done())
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def scenario():
        server = Gate()
        server.gate.app = application
        return await server.post(7, b"x")

    assert asyncio.run(scenario()) == [200]
    assert ended == [False]


REGISTERED, STRANGER = generate_key_pairs(), generate_key_pairs()


@pytest.fixture(scope="module")
def applications():
    """Flower's own application of a SuperLink, and the one with shorter ways."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "_get_middleware", main._get_middleware)
        patch.setattr(extensions, "get_middleware", tuple)
        found = [main.create_app()]
        internals.wrap_middleware(partial(Shortcut, unary=internals.unary_paths()))
        found.append(main.create_app())
    found[1].state.linkstate_factory = found[0].state.linkstate_factory
    state = found[0].state.linkstate_factory.state()
    node = state.create_node("aid", "name", public_key_to_bytes(REGISTERED[1]), 0)
    return found, PullMessagesRequest(node=Node(node_id=node)).SerializeToString()


def signed(keys):
    moment = now().isoformat()
    return {
        FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(public_key_to_bytes(keys[1])).decode(),
        TIMESTAMP_HEADER: moment,
        FLEET_HTTP_SIGNATURE_HEADER: b64encode(sign_message(keys[0], moment.encode())).decode(),
    }


@pytest.mark.parametrize(
    ("path", "keys", "content", "status"),
    [
        ("/v1/fleet/pull-messages", REGISTERED, None, 200),
        ("/v1/fleet/pull-messages", STRANGER, None, 401),
        ("/v1/fleet/pull-messages", None, None, 401),
        ("/v1/fleet/pull-messages", REGISTERED, b"", 401),
        ("/v1/fleet/pull-messages", REGISTERED, b"\xff", 400),
        ("/v1/fleet/push-messages", REGISTERED, None, 500),
        ("/v1/fleet/unheard-of", REGISTERED, b"", 404),
        ("/v1/runtime/get-nodes", None, b"", 401),
        ("/v1/runtime/responses", None, b"{}", 401),
        ("/v1/control/get-login-details", None, b"", 200),
        ("/v1/control/stream-logs", None, b"", 404),
        ("/docs", None, b"", 405),
    ],
)
def test_a_shorter_way_through_flowers_middleware_gives_the_same_answers(
    applications, path, keys, content, status
):
    (long, short), question = applications
    headers = {"content-type": "application/protobuf", **(signed(keys) if keys else {})}

    async def ask(application):
        way = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=way, base_url="http://server") as client:
            answer = await client.post(
                path, headers=headers, content=question if content is None else content
            )
        return answer.status_code, sorted(answer.headers.multi_items()), answer.content

    found = asyncio.run(ask(long))
    assert asyncio.run(ask(short)) == found
    assert found[0] == status


def parts_of_flower():
    return {part.cls.__name__: part for part in main._get_middleware()}


@pytest.mark.parametrize("name", internals.CONCERNED)
@pytest.mark.parametrize("path", ["/v1/fleet/pull-object", "/v1/runtime/pull-object", "/health"])
def test_a_part_that_is_skipped_would_have_done_nothing(monkeypatch, name, path):
    if name not in parts_of_flower():
        assert (name, version("flwr")[:4]) == ("RuntimeTracingMiddleware", "1.42")
        return
    if path.startswith(internals.CONCERNED[name]):
        return
    monkeypatch.setenv("FLWR_TRACING_ENABLED", "1")
    given, passed = Response(b"content"), []
    request = Request({"type": "http", "method": "POST", "path": path, "headers": []})
    request.state.protobuf_request = request.state.protobuf_response = PullMessagesRequest()

    async def call_next(received):
        passed.append(received)
        return given

    part = parts_of_flower()[name].cls(None)
    headers = list(given.raw_headers)
    assert asyncio.run(part.dispatch(request, call_next)) is given
    assert passed == [request]
    assert given.raw_headers == headers


def test_no_answer_that_is_taken_as_a_whole_is_a_stream(applications):
    unary = internals.unary_paths()
    routes = [
        context.route
        for context in iter_route_contexts(applications[0][0].routes)
        if context.path in unary
    ]
    assert len(routes) == len(unary) > 30
    for route in routes:
        assert issubclass(get_type_hints(route.endpoint)["return"], (ProtoMessage, Response))


class Part:
    """Middleware that notes what passes it."""

    def __init__(self, app):
        self.app, self.entered = app, []

    async def __call__(self, scope, receive, send):
        self.entered.append("stream")
        await self.app(scope, receive, send)

    async def dispatch_func(self, request, call_next):
        self.entered.append("whole")
        answer = await call_next(request)
        answer.headers["seen"] = "yes"
        return answer


async def two_parts(scope, receive, send):
    await send({"type": "http.response.start", "status": 201, "headers": [(b"a", b"b")]})
    await send({"type": "http.response.body", "body": b"one", "more_body": True})
    await send({"type": "http.response.body", "body": b"two"})


async def no_answer(scope, receive, send):
    pass


@pytest.mark.parametrize(
    ("path", "entered"), [("/a/whole", ["whole"]), ("/a/other", ["stream"]), ("/b/whole", [])]
)
def test_only_what_concerns_a_part_passes_it(path, entered):
    short = Shortcut(two_parts, Part, ("/a/",), frozenset({"/a/whole", "/b/whole"}))
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(short({"type": "http", "path": path, "headers": []}, None, send))
    assert short.part.entered == entered
    seen = [(b"seen", b"yes")] if entered == ["whole"] else []
    assert sent[0] == {
        "type": "http.response.start",
        "status": 201,
        "headers": [(b"a", b"b"), *seen],
    }
    assert b"".join(message["body"] for message in sent[1:]) == b"onetwo"


def test_an_application_without_an_answer_is_an_error():
    short = Shortcut(no_answer, Part, ("/",), frozenset({"/a"}))
    with pytest.raises(RuntimeError, match="no answer"):
        asyncio.run(short({"type": "http", "path": "/a", "headers": []}, None, None))
