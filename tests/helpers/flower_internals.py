"""The form of what fedbb uses of Flower's private parts, to be compared between versions.

`python -m helpers.flower_internals` prints it as JSON.
"""

import inspect
import json

from fedbb.flower import internals

METHODS = {
    "ControlHttpClient": ["from_server_address", "close"],
    "FleetHttpClient": ["from_server_address", "close", "DeactivateNode"],
    "RuntimeHttpClient": [
        "from_server_address",
        "AcquireTask",
        "PullTaskInput",
        "PullMessages",
        "PullObject",
        "ConfirmMessageReceived",
        "PushMessages",
        "PushObject",
        "PushTaskOutput",
        "SendTaskHeartbeat",
    ],
    "HeartbeatSender": ["__init__", "start", "stop"],
}
MODULES = {
    "flwr.supernode.start_client_internal": ["time.sleep(", "pull_objects("],
    "flwr.superlink.grid.http_grid": ["pull_objects("],
    "flwr.superlink.extensions": ["def get_middleware("],
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
