"""Everything that fedbb uses of Flower beyond its public interface.

`PRIVATE` lists the names, which are imported on first use, and the functions below replace some of
Flower's constants. All of it was read in the versions from `FIRST` to before `END`, and no other
version is accepted. tests/flower/test_internals.py says what changed when Flower changes.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, MutableMapping
from functools import partial
from importlib import import_module
from importlib.metadata import version
from threading import Lock
from typing import Any, Protocol, Self

from fedbb.errors import ReplyError, RunError

FIRST, END = (1, 41), (1, 43)

BACKOFF_SECONDS = 0.05
"""Seconds until an object of a message that is still being sent is asked for again; they double
with every attempt, up to Flower's own limit. Flower begins with one second."""

DATABASE_MILLISECONDS = 60_000
"""Milliseconds that a request waits for the SuperLink's database, as long as a node is considered
connected. Flower gives up after five seconds. With ten nodes on two cores that was too short: a
node's reply was lost, and another node ended."""

PRIVATE = {
    # The SuperLink's interface for control, of which the command line `flwr` is another client.
    "ControlHttpClient": "flwr.supercore.control",
    "Fab": "flwr.supercore.fab",
    "FlowerError": "flwr.supercore.error",
    "ListNodesRequest": "flwr.proto.control_pb2",
    "ListRunsRequest": "flwr.proto.control_pb2",
    "RegisterNodeRequest": "flwr.proto.control_pb2",
    "RuntimeVersionHttpInterceptor": "flwr.supercore.interceptors",
    "StartRunRequest": "flwr.proto.control_pb2",
    "StopRunRequest": "flwr.proto.control_pb2",
    "StreamLogsRequest": "flwr.proto.control_pb2",
    "UnregisterNodeRequest": "flwr.proto.control_pb2",
    "build_fab_from_disk": "flwr.cli.build",
    "fab_to_proto": "flwr.common.serde",
    "run_from_proto": "flwr.common.serde",
    "user_config_to_proto": "flwr.common.serde",
    # Deactivation of a node that was killed, which no command does.
    "DeactivateNodeRequest": "flwr.proto.fleet_pb2",
    "FleetHttpClient": "flwr.supernode.fleet_http_client",
    "NodeAuthHttpInterceptor": "flwr.supernode.node_auth_http_interceptor",
    # The SuperNode's interface for programs that run client apps (`--isolation process`).
    "AcquireTaskRequest": "flwr.proto.runtime_pb2",
    "HeartbeatSender": "flwr.supercore.heartbeat",
    "NodeProto": "flwr.proto.node_pb2:Node",
    "PullAppMessagesRequest": "flwr.proto.runtime_pb2",
    "PullTaskInputRequest": "flwr.proto.runtime_pb2",
    "PushAppMessagesRequest": "flwr.proto.runtime_pb2",
    "PushTaskOutputRequest": "flwr.proto.runtime_pb2",
    "SubStatus": "flwr.common.constant",
    "runtime_handlers": "flwr.supernode.main",
    "iterate_object_tree": "flwr.supercore.inflatable.inflatable_object",
    "make_confirm_message_received_fn_protobuf": (
        "flwr.supercore.inflatable.inflatable_protobuf_utils"
    ),
    "make_pull_object_fn_protobuf": "flwr.supercore.inflatable.inflatable_protobuf_utils",
    "make_push_object_fn_protobuf": "flwr.supercore.inflatable.inflatable_protobuf_utils",
    "pull_objects": "flwr.supercore.inflatable.inflatable_utils",
    "push_object_contents_from_iterable": "flwr.supercore.inflatable.inflatable_utils",
    # The requests of the SuperLink's interfaces.
    "PROTOBUF_REQUEST_TYPES": "flwr.supercore.protobuf.translation",
    # What a program that runs client apps does with a task.
    "MessageProto": "flwr.proto.message_pb2:Message",
    "ObjectTree": "flwr.proto.message_pb2",
    "PullTaskInputResponse": "flwr.proto.runtime_pb2",
    "context_from_proto": "flwr.common.serde",
    "context_to_proto": "flwr.common.serde",
    "get_all_nested_objects": "flwr.supercore.inflatable.inflatable_object",
    "get_load_client_app_fn": "flwr.clientapp.utils",
    "get_object_tree": "flwr.supercore.inflatable.inflatable_object",
    "inflate_object_from_contents": "flwr.supercore.inflatable.inflatable_utils",
    "install_from_fab": "flwr.cli.install",
    "message_from_proto": "flwr.common.serde",
    "message_to_proto": "flwr.common.serde",
    "no_object_id_recompute": "flwr.supercore.inflatable.inflatable_object",
    "remove_content_from_message": "flwr.app.message",
    # Codes of errors in messages.
    "ErrorCode": "flwr.common.constant",
    # The two programs, which are started with the changes below.
    "flower_superlink": "flwr.superlink.cli",
    "flower_supernode": "flwr.supernode.cli",
}
"""Private names of Flower with their modules; "module:name" where Flower's own name differs."""


class Sleeper(Protocol):
    """Something that waits, such as the module `time`."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


def __getattr__(name: str) -> Any:
    """Import a private name of Flower, if the installed version is one that was read."""
    if name not in PRIVATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_version()
    module, _, other = PRIVATE[name].partition(":")
    return getattr(import_module(module), other or name)


def check_version(installed: str | None = None) -> None:
    """Raise RunError if this version of Flower, by default the installed one, was never read."""
    installed = version("flwr") if installed is None else installed
    numbers = tuple(int(part) for part in installed.split(".")[:2] if part.isdigit())
    if not FIRST <= numbers < END:
        bounds = "flwr>={}.{},<{}.{}".format(*FIRST, *END)
        raise RunError(
            f'Flower {installed} is installed, and fedbb works with others: pip install "{bounds}"'
        )


def set_middleware(*outermost: Any) -> None:
    """Let the SuperLink of this process pass every request through these first."""
    check_version()
    from flwr.superlink import extensions

    others = extensions.get_middleware

    def all_middleware() -> tuple[Any, ...]:
        return (*outermost, *others())

    extensions.get_middleware = all_middleware


CONCERNED = {
    "ControlSensitiveResponseMiddleware": ("/v1/control/",),
    "ControlAuthenticationMiddleware": ("/v1/control/",),
    "ControlLicenseMiddleware": ("/v1/control/",),
    "ControlEventLogMiddleware": ("/v1/control/",),
    "NodeAuthMiddleware": ("/v1/fleet/",),
    "FleetEventLogMiddleware": ("/v1/fleet/",),
    "RuntimeTracingMiddleware": ("/v1/runtime/acquire-task", "/v1/runtime/pull-task-input"),
}
"""Parts of Flower's middleware by name, with the beginnings of the only paths on which they do
anything."""


def wrap_middleware(wrap: Callable[[Any, Any, tuple[str, ...]], Any]) -> None:
    """Let the SuperLink of this process use `wrap` in place of each part of Flower's middleware.

    `wrap` gets the application, a function that makes the part, and the beginnings of the paths
    that concern the part.
    """
    check_version()
    from starlette.middleware import Middleware

    main: Any = import_module("flwr.superlink.main")
    listed = main._get_middleware

    def wrapped() -> list[Any]:
        return [
            Middleware(
                wrap,
                partial(part.cls, *part.args, **part.kwargs),
                CONCERNED.get(part.cls.__name__, ("",)),
            )
            if hasattr(part.cls, "dispatch")
            else part
            for part in listed()
        ]

    main._get_middleware = wrapped


def unary_paths() -> frozenset[str]:
    """Return the paths of nodes and apps whose requests are answered as a whole, by no stream."""
    paths = {path for _, path in __getattr__("PROTOBUF_REQUEST_TYPES")}
    return frozenset(path for path in paths if path.startswith(("/v1/fleet/", "/v1/runtime/")))


def find_node(scope: MutableMapping[str, Any]) -> int | None:
    """Return the registered node whose key signed a request to this process's SuperLink, if any.

    Flower itself asks this after it has read the body of the request. Here its check is given a
    message that names no other node.
    """
    check_version()
    from flwr.proto.fleet_pb2 import ActivateNodeRequest
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
    from flwr.superlink.dependencies.linkstate import get_linkstate
    from flwr.superlink.routers.fleet import node_auth
    from starlette.exceptions import HTTPException
    from starlette.requests import Request

    request = Request({**scope, "state": {}})
    try:
        key = b64decode(request.headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
        request.state.protobuf_request = ActivateNodeRequest(public_key=key)
        node_auth.authenticate_node(request)
    except (KeyError, ValueError, HTTPException):
        return None
    return get_linkstate(request).get_node_id_by_public_key(key)


def wait_for_database() -> None:
    """Let requests to the SuperLink of this process wait longer for its database."""
    check_version()
    from flwr.supercore import sql_mixin
    from flwr.supercore.constant import SQLITE_PRAGMAS

    where: Any = sql_mixin
    pragmas = {**dict(SQLITE_PRAGMAS), "busy_timeout": str(DATABASE_MILLISECONDS)}
    where.SQLITE_PRAGMAS = tuple(pragmas.items())


def shorten_pulls(*modules: str) -> None:
    """Let these modules of Flower ask again sooner for objects that are still being sent."""
    check_version()
    for name in modules:
        module: Any = import_module(name)
        module.pull_objects = partial(module.pull_objects, initial_backoff=BACKOFF_SECONDS)


def adjust_server_pulls(longest: Callable[[], int]) -> None:
    """Let the server app of this process receive a reply as soon as it is complete.

    A reply of more than `longest()` bytes is not received to its end: a site decides how many
    objects its reply has.
    """
    name = "flwr.superlink.grid.http_grid"
    shorten_pulls(name)
    module: Any = import_module(name)
    pull_objects = module.pull_objects

    def pull_bounded(
        object_ids: list[str], pull_object_fn: Callable[[str], bytes], **options: Any
    ) -> dict[str, bytes]:
        bounded = _bounded(pull_object_fn, longest())
        return dict(pull_objects(object_ids=object_ids, pull_object_fn=bounded, **options))

    module.pull_objects = pull_bounded


class Arrivals:
    """The replies that have arrived for the server app of this process.

    The grid itself is asked for one reply at a time, because one that cannot be decoded fails the
    whole request. This asks the SuperLink about all, and keeps what it says until the grid has
    received the replies: the SuperLink says it only once.

    Args:
        client: the grid's connection to the SuperLink.
    """

    def __init__(self, client: Any) -> None:
        self._ask = client.PullMessages
        self._found: dict[str, Any] = {}
        client.PullMessages = self._answer

    @classmethod
    def of(cls, grid: Any) -> Self | None:
        """Return the arrivals of Flower's grid, None for one that asks no SuperLink."""
        check_version()
        client = getattr(grid, "_runtime_client", None)
        return None if client is None else cls(client)

    def __call__(self, numbers: list[str]) -> list[str]:
        """Return those of these messages whose replies have arrived, and forget all others."""
        self._found = {number: self._found[number] for number in numbers if number in self._found}
        asked = __getattr__("PullAppMessagesRequest")(message_ids=numbers)
        found = self._ask(asked)
        for message, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            number = message.metadata.reply_to_message_id
            kept = self._found.setdefault(number, type(found)())
            kept.messages_list.append(message)
            kept.message_object_trees.append(tree)
        return [number for number in numbers if number in self._found]

    def _answer(self, request: Any) -> Any:
        """Return what the SuperLink returns, or has returned, to the grid's own request."""
        (number,) = request.message_ids
        return self._found.get(number) or self._ask(request)


def _bounded(pull: Callable[[str], bytes], longest: int) -> Callable[[str], bytes]:
    """Return `pull`, which several threads call, until it has returned too many bytes."""
    length, lock = 0, Lock()

    def pull_one(object_id: str) -> bytes:
        nonlocal length
        content = pull(object_id)
        with lock:
            length += len(content)
            if length > longest:
                raise ReplyError(f"longer than {longest:,} bytes, the most that a reply may have")
        return content

    return pull_one


def set_sleeper(sleeper: Sleeper) -> None:
    """Let the SuperNode of this process wait as `sleeper` does.

    It sleeps for 3 s if the server has no message for it, and repeatedly for 0.5 s while it waits
    for the reply to a message.
    """
    shorten_pulls("flwr.supernode.start_client_internal")
    module: Any = import_module("flwr.supernode.start_client_internal")
    module.time = sleeper


def on_node_state(receive: Callable[[Any], None]) -> None:
    """Let the SuperNode of this process hand over its state before it connects."""
    check_version()
    module: Any = import_module("flwr.supernode.cli.flower_supernode")
    start = module.start_client_internal

    def start_observed(**options: Any) -> None:
        receive(options["state_factory"].state())
        start(**options)

    module.start_client_internal = start_observed


class NodeTask:
    """A task of this process's SuperNode, taken and done without its HTTP interface.

    Args:
        state: the SuperNode's state.
        token: what the SuperNode gave out with the task.
        number: the task's number.
    """

    def __init__(self, state: Any, token: str, number: int) -> None:
        self._state, self._token, self._number = state, token, number
        self._handlers = __getattr__("runtime_handlers")

    @classmethod
    def acquire(cls, state: Any, kind: str) -> Self | None:
        """Return the next task of a kind, None if there is none."""
        request = __getattr__("AcquireTaskRequest")(supported_task_types=[kind])
        acquired = __getattr__("runtime_handlers").acquire_task(request, state)
        if not (acquired.HasField("task") and acquired.token):
            return None
        return cls(state, acquired.token, acquired.task.task_id)

    def call(self, name: str, request: Any) -> Any:
        """Return what Flower's handler of this name returns for a request about the task.

        Raises:
            RunError: The SuperNode has given the task up, as the route of the handler checks too.
        """
        task = self._state.get_task_by_token(self._token)
        if task is None:
            raise RunError("the SuperNode has given up this task")
        return getattr(self._handlers, name)(request, self._state, task)

    def prolong(self) -> None:
        """Report that the task goes on."""
        self._state.acknowledge_task_heartbeat(self._number)
