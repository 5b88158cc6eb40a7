"""Who must not get in, does not; tried on a real server, with real nodes."""

import http.client
import shutil
import socket
import ssl
import subprocess
import time
from base64 import b64encode
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message
from flwr.supercore.retry.http_retry import _RETRYABLE_STATUS_CODES
from flwr.supernode import node_auth_http_interceptor
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from httpx import HTTPStatusError

from fedbb.flower.admin import processes
from fedbb.flower.admin.certificates import (
    load_site_key,
    make_certificates,
    make_site_key,
    read_certificate,
    sign_server,
)
from fedbb.flower.admin.local import free_port, node_command
from fedbb.flower.admin.paths import FederationFolder, SiteFolder
from fedbb.flower.admin.processes import Group, environment
from fedbb.flower.admin.superlink import LONGEST_BODY, MOST_FROM_ONE, PUSH_OBJECT
from fedbb.flower.admin.templates import make_federation

pytestmark = pytest.mark.flower


SECONDS = 90


@pytest.fixture(scope="module")
def attempts(federation, tmp_path_factory):
    """Nodes that must not get in, all of them tried at once: exit code and words of each."""
    folder = tmp_path_factory.mktemp("strangers")
    with Group() as group:
        expired = start_expired(federation, group, folder)
        nodes = {
            name: start_stranger(federation, group, folder / name, **ways)
            for name, ways in {
                "unregistered": {},
                "other authority": {"ca": other_authority(folder / "other")},
                "plaintext": {"change": ("--root-certificates", "--insecure")},
                "keyless": {"change": ("--auth-supernode-private-key", "--max-retries", "0")},
                "expired": {"address": expired},
            }.items()
        }
        limit = time.monotonic() + SECONDS
        while any(node.is_running() for node in nodes.values()) and time.monotonic() < limit:
            time.sleep(0.1)
        ended = {name: node.process.poll() for name, node in nodes.items()}
    assert processes.find_marked(group.mark) == []
    return {name: (code, nodes[name].output()) for name, code in ended.items()}


def start_stranger(federation, group, folder, *, address=None, ca=None, change=None):
    """Start a node with a key that nobody registered."""
    site = SiteFolder(folder)
    site.state.mkdir(parents=True)
    make_site_key(site)
    shutil.copy(ca or federation.folder.ca, site.ca)
    words = node_command(site, {"client": 0}, address or federation.address, free_port("127.0.0.1"))
    if change:
        place = words.index(change[0])
        words[place : place + 2] = change[1:]
    return group.start(folder.name, words, environment(site.state / "flwr"), site.log)


def other_authority(path):
    other = FederationFolder(path)
    make_federation(other, 0)
    make_certificates(other)
    return other.ca


def start_expired(federation, group, folder):
    """Start a server whose certificate, of the right authority, has expired."""
    certificates = federation.folder
    key, signer = (
        serialization.load_pem_private_key(path.read_bytes(), None)
        for path in (certificates.server_key, certificates.ca_key)
    )
    now = datetime.now(UTC)
    signed = sign_server(
        (read_certificate(certificates.ca), signer),
        key,
        ["localhost", "127.0.0.1"],
        now - timedelta(days=2),
        now - timedelta(days=1),
    )
    certificate = folder / "expired.crt"
    certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    words, port = list(federation.superlink.command), free_port("127.0.0.1")
    for option, value in (
        ("--port", str(port)),
        ("--ssl-certfile", str(certificate)),
        ("--database", str(folder / "state.db")),
    ):
        words[words.index(option) + 1] = value
    server = group.start("server", words, environment(folder / "flwr"), folder / "server.log")
    while "Uvicorn running" not in server.output():
        assert server.is_running(), server.output()
        time.sleep(0.1)
    return f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("who", "words"),
    [
        ("unregistered", "[code: 2004]"),
        ("other authority", "CERTIFICATE_VERIFY_FAILED"),
        ("plaintext", "requires a secure TLS connection"),
        ("keyless", "[code: 2001]"),  # nobody registers themselves
        ("expired", "certificate has expired"),
    ],
)
def test_nodes_that_must_not_get_in_are_refused_for_the_right_reason(attempts, who, words):
    code, said = attempts[who]
    assert code not in (0, None), said
    assert words in said
    assert "SuperNode ID" not in said


def test_the_server_has_noted_the_unregistered_key_and_taken_nobody_in(attempts, federation):
    assert "2004" in federation.logs("superlink")
    assert {node.name for node in federation.control.nodes()} == {"site-0", "site-1", "site-2"}


def test_the_server_speaks_no_plaintext(federation):
    connection = http.client.HTTPConnection(federation.address, timeout=5)
    with closing(connection):
        connection.request("GET", "/health")
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            connection.getresponse()


def test_a_stolen_id_with_another_key_is_refused(federation, tmp_path):
    stranger = SiteFolder(tmp_path)
    make_site_key(stranger)
    assert pull(federation, stranger, "site-0") == 401
    assert pull(federation, federation.folder.site(1), "site-0") == 401
    assert pull(federation, federation.folder.site(0), "site-0") == 200


def pull(federation, site, name):
    """Ask for a node's messages with a site's key; return the status of the answer."""
    node = next(node for node in federation.control.nodes() if node.name == name)
    key = load_site_key(site.key)
    auth = NodeAuthHttpInterceptor(key, key.public_key())
    trust = federation.folder.ca.read_bytes()
    with FleetHttpClient.from_server_address(
        federation.address, False, trust, interceptors=[auth]
    ) as client:
        try:
            client.PullMessages(PullMessagesRequest(node=Node(node_id=node.identity)))
        except HTTPStatusError as error:
            return error.response.status_code
    return 200


@pytest.mark.parametrize("ahead", [3600, 10, -400, -3600])
def test_a_site_whose_clock_is_off_is_refused(federation, monkeypatch, ahead):
    clock = node_auth_http_interceptor.now
    monkeypatch.setattr(
        node_auth_http_interceptor, "now", lambda: clock() + timedelta(seconds=ahead)
    )
    assert pull(federation, federation.folder.site(2), "site-2") == 401


def test_a_site_whose_clock_is_a_little_off_is_not_refused(federation, monkeypatch):
    clock = node_auth_http_interceptor.now
    for ahead in (2, -100):
        monkeypatch.setattr(
            node_auth_http_interceptor, "now", lambda by=ahead: clock() + timedelta(seconds=by)
        )
        assert pull(federation, federation.folder.site(2), "site-2") == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/control/list-nodes", 404),
        ("/v1/control/start-run", 404),
        ("/v1/control/register-node", 404),
        ("/v1/runtime/acquire-task", 404),
        ("/docs", 404),
        ("/openapi.json", 404),
        ("/health", 200),
    ],
)
def test_other_machines_cannot_reach_what_is_for_the_servers_staff(federation, path, status):
    # From this machine the server believes a proxy's word for where a call comes from.
    trust = ssl.create_default_context(cafile=str(federation.folder.ca))
    connection = http.client.HTTPSConnection(federation.address, context=trust, timeout=5)
    method = "GET" if status == 200 else "POST"
    with closing(connection):
        connection.request(method, path, headers={"X-Forwarded-For": "203.0.113.5"})
        answer = connection.getresponse()
        said = answer.read()
    assert answer.status == status
    assert said == (b"closed to other machines\n" if status == 404 else b"")


def test_private_keys_stand_on_no_command_line(federation):
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert "PRIVATE KEY" not in listed.stdout


ESTABLISHED = "01"
"""A connection's state in the tables of the kernel."""

EMPTY_TREES = b"\x1a\x00" * 2**19
"""Part of a message to push, a mebibyte, in which every two bytes become an object of 56."""


def signed(site):
    """Return the headers by which a site signs a request."""
    key, time_stamp = load_site_key(site.key), now().isoformat()
    content = {
        FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(public_key_to_bytes(key.public_key())).decode(),
        FLEET_HTTP_SIGNATURE_HEADER: b64encode(sign_message(key, time_stamp.encode())).decode(),
        TIMESTAMP_HEADER: time_stamp,
    }
    return "".join(f"{name}: {value}\r\n" for name, value in content.items())


@pytest.fixture
def open_post(federation):
    """Begin a request with a body of this length, and return its connection."""
    trust = ssl.create_default_context(cafile=str(federation.folder.ca))
    host, port = federation.address.split(":")
    with ExitStack() as stack:

        def begin(path, length, headers=""):
            plain = socket.create_connection((host, int(port)), 30)
            line = stack.enter_context(trust.wrap_socket(plain, server_hostname="localhost"))
            kind = "Content-Type: application/protobuf\r\n"
            size = f"Content-Length: {length}" if length else "Transfer-Encoding: chunked"
            begin = f"POST {path} HTTP/1.1\r\nHost: x\r\n{kind}{size}\r\n{headers}\r\n"
            line.sendall(begin.encode())
            return line

        yield begin


def send_body(line, part, times, chunked=False):
    """Send a part so many times, or until the server ends the connection."""
    framed = b"%x\r\n%b\r\n" % (len(part), part) if chunked else part
    with suppress(OSError):
        for _ in range(times):
            line.sendall(framed)


def status_of(line):
    """Return the status of the answer, 0 if the server ended the connection before it was read."""
    try:
        words = line.recv(1000).split()
    except OSError:
        return 0
    return int(words[1]) if words else 0


def memory(process):
    """Return the bytes that a process holds, and the most that it held since the last call."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    sizes = {name: value for name, _, value in (line.partition(":") for line in lines)}
    Path(f"/proc/{process}/clear_refs").write_text("5")
    return tuple(int(sizes[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))


def underway(address):
    """Return the bytes that were sent to an address and that its process has not read."""
    port, queued = f"{int(address.split(':')[1]):04X}", 0
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, own, other, state, queues = line.split()[:5]
            sent, received = (int(size, 16) for size in queues.split(":"))
            if state == ESTABLISHED:
                queued += received * own.endswith(port) + sent * other.endswith(port)
    return queued


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", [PUSH_OBJECT, "/v1/fleet/push-messages"])
def test_who_is_not_registered_cannot_fill_the_servers_memory(
    federation, open_post, tmp_path, path, chunked
):
    stranger = SiteFolder(tmp_path)
    make_site_key(stranger)
    before, _ = memory(federation.superlink.pid)
    for headers in ("", signed(stranger)):
        lines = [open_post(path, 0 if chunked else 64 * 2**20, headers) for _ in "abcd"]
        for line in lines:
            send_body(line, EMPTY_TREES, 64, chunked)
        assert {status_of(line) for line in lines} <= {401, 0}
    assert memory(federation.superlink.pid)[1] < before + 64 * 2**20


def test_a_registered_site_fills_its_share_of_the_servers_memory_and_shuts_nobody_out(
    federation, open_post
):
    site = signed(federation.folder.site(0))
    before, _ = memory(federation.superlink.pid)
    held = [open_post(PUSH_OBJECT, LONGEST_BODY, site) for _ in "ab"]
    for line in held:
        send_body(line, bytes(2**20), LONGEST_BODY // 2**20 - 1)
    while underway(federation.address):
        time.sleep(0.01)  # until the server has read what was sent
    _, peak = memory(federation.superlink.pid)
    third = open_post(PUSH_OBJECT, LONGEST_BODY, site)
    send_body(third, bytes(2**20), 64)
    assert status_of(third) in (503, 0)
    trees = open_post("/v1/fleet/push-messages", 4 * 2**20, site)
    send_body(trees, EMPTY_TREES, 4)
    assert status_of(trees) in (503, 0)
    other = open_post(PUSH_OBJECT, 8 * 2**20, signed(federation.folder.site(1)))
    send_body(other, bytes(2**20), 8)
    assert status_of(other) == 400  # it was read, and is no message
    assert pull(federation, federation.folder.site(0), "site-0") == 200
    for line in held:
        line.close()
    assert max(peak, *memory(federation.superlink.pid)) < before + 2 * MOST_FROM_ONE


def test_a_site_that_was_told_to_try_again_does():
    """Nodes and the server's own programs end after other errors of the server than 503."""
    assert set(_RETRYABLE_STATUS_CODES) & {401, 404, 408, 413, 500, 503} == {503}
