"""The form of what fedbb uses of Flower's private parts, to be compared between versions.

`python -m helpers.flower_internals` prints it as JSON.
"""

import inspect
import json

from fedbb.flower import internals
from fedbb.flower.internals import unary_paths

METHODS = {
    "ControlHttpClient": ["from_server_address", "close"],
    "FleetHttpClient": ["from_server_address", "close", "DeactivateNode"],
    "HeartbeatSender": ["__init__", "start", "stop"],
    "runtime_handlers": [
        "acquire_task",
        "pull_task_input",
        "pull_messages",
        "pull_object",
        "confirm_message_received",
        "push_messages",
        "push_object",
        "push_task_output",
    ],
}
MODULES = {
    "flwr.supernode.start_client_internal": ["time.sleep(", "pull_objects("],
    "flwr.supernode.cli.flower_supernode": ["start_client_internal(", "state_factory="],
    "flwr.supernode.nodestate.nodestate_factory": ["def state("],
    "flwr.supercore.corestate.corestate": [
        "def get_task_by_token(",
        "def acknowledge_task_heartbeat(",
    ],
    "flwr.supercore.dependencies.task": ["get_task_by_token("],
    "flwr.superlink.grid.http_grid": [
        "pull_objects(",
        "def _runtime_client(",
        "_runtime_client.PullMessages(",
        "res.messages_list",
    ],
    "flwr.superlink.extensions": ["def get_middleware("],
    "flwr.superlink.main": ["def _get_middleware(", "_get_middleware()"],
    "flwr.superlink.dependencies.linkstate": ["def get_linkstate(", "app.state"],
    "flwr.superlink.routers.fleet.node_auth": [
        "def authenticate_node(",
        "PUBLIC_KEY_HEADER",
        "ActivateNodeRequest",
        "protobuf_request",
    ],
    "flwr.supercore.sql_mixin": ["SQLITE_PRAGMAS"],
}
"""Modules that fedbb changes or calls, with the words of the lines that matter."""


def form_of(name):
    """Return the form of a private name: fields, methods or a signature."""
    thing = getattr(internals, name)
    if hasattr(thing, "DESCRIPTOR"):
        return sorted(field.name for field in thing.DESCRIPTOR.fields)
    if name in METHODS:
        return {method: str(inspect.signature(getattr(thing, method))) for method in METHODS[name]}
    if name == "PROTOBUF_REQUEST_TYPES":
        return {path: kind.__name__ for (_, path), kind in thing.items() if path in unary_paths()}
    if name in ("ErrorCode", "SubStatus"):
        return {key: value for key, value in vars(thing).items() if key.isupper()}
    return str(inspect.signature(thing))


def lines_of(module):
    """Return the lines of a changed module that matter."""
    from importlib import import_module

    source = inspect.getsource(import_module(module)).splitlines()
    words = MODULES[module]
    return [line.strip() for line in source if any(word in line for word in words)]


def forms():
    """Return the forms of all names and lines."""
    return {name: form_of(name) for name in internals.PRIVATE} | {
        module: lines_of(module) for module in MODULES
    }


if __name__ == "__main__":
    print(json.dumps(forms(), indent=1, sort_keys=True))
