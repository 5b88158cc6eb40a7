"""What fedbb uses of Flower's private parts: in one file, and as it was when it was read."""

import ast
import json
import re
from base64 import b64encode
from datetime import timedelta
from importlib.metadata import requires, version
from pathlib import Path
from types import SimpleNamespace

import pytest
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import (
    generate_key_pairs,
    public_key_to_bytes,
    sign_message,
)

import fedbb.flower
from fedbb.errors import ReplyError, RunError
from fedbb.flower import internals
from helpers.flower_internals import MODULES, form_of, lines_of

KNOWN = json.loads((Path(__file__).parent / "internals.json").read_text())
PUBLIC = re.compile(r"flwr\.(app|clientapp|serverapp)(\.(typing|strategy|mod))?")


@pytest.mark.parametrize("name", internals.PRIVATE)
def test_a_private_name_is_what_it_was_when_it_was_read(name):
    assert form_of(name) == KNOWN[name], f"Flower {version('flwr')} changed {name}"


@pytest.mark.parametrize("module", MODULES)
def test_what_is_replaced_in_flower_is_still_there(module):
    assert lines_of(module) == KNOWN[module], f"Flower {version('flwr')} changed {module}"


def test_nothing_else_is_recorded():
    assert KNOWN.keys() == {*internals.PRIVATE, *MODULES}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def test_only_one_file_imports_private_parts_of_flower():
    package = Path(fedbb.flower.__file__).parents[1]
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for name in imported(path)
        if name.split(".")[0] == "flwr" and not PUBLIC.fullmatch(name)
    }
    assert found == {"flower/internals.py"}


@pytest.mark.parametrize("other", ["1.40.9", "1.43.0", "2.0", "0.99", "unknown"])
def test_a_version_that_nobody_read_is_refused_with_the_remedy(other):
    with pytest.raises(RunError, match=rf"Flower {other} is installed.*flwr>=1.41,<1.43"):
        internals.check_version(other)


@pytest.mark.parametrize("read", ["1.41.0", "1.42.3", "1.42.0.dev1"])
def test_a_version_that_was_read_is_accepted(read):
    internals.check_version(read)


def test_the_range_is_the_one_that_the_package_asks_for():
    (asked,) = {line.split(";")[0].strip() for line in requires("fedbb") if "flwr" in line}
    bounds = {f">={'.'.join(map(str, internals.FIRST))}", f"<{'.'.join(map(str, internals.END))}"}
    assert set(asked.removeprefix("flwr").split(",")) == bounds


def test_an_unknown_name_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'made_up'"):
        _ = internals.made_up


@pytest.fixture
def pulls(monkeypatch):
    """Flower's function that receives the objects of a reply, as the server app adjusts it."""
    from flwr.superlink.grid import http_grid

    monkeypatch.setattr(http_grid, "pull_objects", http_grid.pull_objects)
    longest = [100]
    internals.adjust_server_pulls(lambda: longest[0])
    return http_grid, longest


def test_a_reply_is_received_up_to_its_bound_and_not_beyond(pulls):
    grid, longest = pulls
    received = []

    def pull(name):
        received.append(name)
        return bytes(25)

    names = [str(number) for number in range(1000)]
    whole = grid.pull_objects(object_ids=names[:4], pull_object_fn=pull)
    assert whole == dict.fromkeys(names[:4], bytes(25))
    received.clear()
    with pytest.raises(ReplyError, match="longer than 100 bytes"):
        grid.pull_objects(object_ids=names, pull_object_fn=pull)
    assert len(received) < 50
    longest[0] = 25_000
    assert len(grid.pull_objects(object_ids=names, pull_object_fn=pull)) == 1000


def test_an_object_that_is_still_being_sent_is_soon_asked_for_again(monkeypatch):
    from flwr.superlink.grid import http_grid

    asked = []
    monkeypatch.setattr(http_grid, "pull_objects", lambda **options: asked.append(options) or {})
    internals.adjust_server_pulls(lambda: 100)
    assert http_grid.pull_objects(object_ids=["a"], pull_object_fn=bytes, max_time=5) == {}
    assert asked[0]["initial_backoff"] == internals.BACKOFF_SECONDS
    assert (asked[0]["object_ids"], asked[0]["max_time"]) == (["a"], 5)


class Nodes:
    """The SuperLink's state, with one registered node."""

    def __init__(self, key):
        self.key = public_key_to_bytes(key.public_key())

    def state(self):
        return self

    def get_node_id_by_public_key(self, key):
        return 7 if key == self.key else None


def request_of(key, registered, seconds=0, claimed=None):
    """Return a request that a key has signed, to a SuperLink with one registered key."""
    moment = (now() + timedelta(seconds=seconds)).isoformat()
    public = public_key_to_bytes((claimed or key).public_key())
    headers = [
        (FLEET_HTTP_PUBLIC_KEY_HEADER, b64encode(public).decode()),
        (TIMESTAMP_HEADER, moment),
        (FLEET_HTTP_SIGNATURE_HEADER, b64encode(sign_message(key, moment.encode())).decode()),
    ]
    app = SimpleNamespace(state=SimpleNamespace(linkstate_factory=Nodes(registered)))
    encoded = [(name.encode(), value.encode()) for name, value in headers]
    return {"type": "http", "headers": encoded, "app": app}


def test_the_node_that_signed_a_request_is_found_and_nobody_else():
    (known, _), (other, _) = generate_key_pairs(), generate_key_pairs()
    assert internals.find_node(request_of(known, known)) == 7
    assert internals.find_node(request_of(other, known)) is None
    assert internals.find_node(request_of(other, known, claimed=known)) is None
    assert internals.find_node(request_of(known, known, seconds=-3600)) is None
    scope = request_of(known, known)
    for kept in range(3):
        assert internals.find_node({**scope, "headers": scope["headers"][:kept]}) is None
    for invalid in (b"", b"?", b"\xff", b64encode(b"no key")):
        headers = [(FLEET_HTTP_PUBLIC_KEY_HEADER.encode(), invalid), *scope["headers"][1:]]
        assert internals.find_node({**scope, "headers": headers}) is None
