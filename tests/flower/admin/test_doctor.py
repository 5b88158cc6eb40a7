import os
import re
import socket
import ssl
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from fedbb.errors import RunError
from fedbb.flower.admin import doctor
from fedbb.flower.admin.certificates import make_certificates
from fedbb.flower.admin.control import Health, check_health
from fedbb.flower.admin.doctor import check_clock, examine
from fedbb.flower.admin.local import free_port
from fedbb.flower.admin.paths import FederationFolder
from fedbb.flower.admin.templates import make_federation


@pytest.fixture
def folder(tmp_path):
    folder = FederationFolder(tmp_path / "federation")
    make_federation(folder, 2, f"localhost:{free_port('127.0.0.1')}")
    make_certificates(folder)
    return folder


def told(findings, subject, level=None):
    return [f for f in findings if f.subject == subject and level in (None, f.level)]


def worst(findings):
    return {finding.level for finding in findings}


def test_a_fresh_federation_is_well(folder):
    findings = examine(folder.path)
    assert worst(findings) <= {"ok", "warn"}
    assert "is free; no server is running" in told(findings, "port", "ok")[0].message


def test_every_finding_that_is_not_well_says_what_to_do(folder):
    folder.ca.unlink()
    folder.server_key.chmod(0o644)
    folder.site(0).key.unlink()
    folder.site(0).public_key.unlink()
    folder.site(1).settings_file.write_text("client = 1")
    findings = examine(folder.path)
    assert sum(finding.level == "bad" for finding in findings) >= 4
    assert all(finding.advice for finding in findings if finding.level != "ok")


@pytest.mark.parametrize(
    ("days", "level", "words"),
    [(0, "ok", "is valid until"), (380, "warn", "expires on"), (400, "bad", "expired on")],
)
def test_the_dates_of_certificates_are_told(folder, days, level, words):
    found = told(
        examine(folder.path, datetime.now(UTC) + timedelta(days=days)), "server.crt", level
    )
    assert any(words in finding.message for finding in found)


def test_a_clock_before_the_certificates_is_told(folder):
    (found, *_) = told(examine(folder.path, datetime.now(UTC) - timedelta(days=1)), "ca.crt", "bad")
    assert "is valid only from" in found.message
    assert "clock" in found.advice


def test_a_key_that_others_can_read_is_bad(folder):
    folder.site(1).key.chmod(0o640)
    (found,) = told(examine(folder.path), "site-1 key", "bad")
    assert "mode 640" in found.message
    assert found.advice == f"chmod 600 {folder.site(1).key}"


def test_the_key_of_the_authority_may_be_kept_elsewhere(folder):
    folder.ca_key.unlink()
    assert told(examine(folder.path), "ca.key", "ok")[0].message == "is kept elsewhere"


def test_a_certificate_for_another_name_is_bad(folder):
    port = folder.dialed()[1]
    folder.settings_file.write_text(f'server = "hospital.example:{port}"\n')
    found = told(examine(folder.path), "server.crt", "bad")
    assert "is not valid for hospital.example" in found[0].message


def test_a_certificate_of_another_authority_is_bad(folder, tmp_path):
    other = FederationFolder(tmp_path / "other")
    make_federation(other, 0)
    make_certificates(other)
    folder.server_certificate.write_bytes(other.server_certificate.read_bytes())
    found = told(examine(folder.path), "server.crt", "bad")
    assert "another authority" in found[0].message


def test_data_that_is_not_there_is_bad_at_the_site_and_a_warning_at_the_server(folder):
    site = folder.site(0)
    server = site.settings()["server"]
    site.settings_file.write_text(f'client = 0\nserver = "{server}"\ndata = "none.npz"\n')
    assert told(examine(folder.path), "site-0 data", "warn")
    assert told(examine(site.path), "site-0 data", "bad")
    (site.path / "none.npz").write_bytes(b"")
    assert told(examine(site.path), "site-0 data", "ok")


def test_a_site_is_told_that_nobody_listens(folder):
    (found,) = told(examine(folder.site(0).path), "server", "bad")
    assert "no program listens" in found.message
    assert "firewall" in found.advice


def test_a_site_without_its_key_or_authority_is_told(folder):
    site = folder.site(0)
    site.key.unlink()
    site.ca.unlink()
    findings = examine(site.path)
    assert told(findings, "site-0 key", "bad")
    assert told(findings, "ca.crt", "bad")


def test_telemetry_that_is_switched_on_is_told(folder, monkeypatch):
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    (found,) = told(examine(folder.path), "telemetry", "warn")
    assert "FLWR_TELEMETRY_ENABLED" in found.message
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    assert told(examine(folder.path), "telemetry", "ok")


@pytest.mark.parametrize(("free", "level"), [(10**10, "ok"), (10**9, "warn"), (10**7, "bad")])
def test_little_disk_space_is_told(folder, monkeypatch, free, level):
    usage = type("Usage", (), {"free": free})
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage)
    assert told(examine(folder.path), "disk", level)


@pytest.mark.parametrize(
    ("found", "level"),
    [("1.40.2", "bad"), ("1.41.0", "ok"), ("1.42.3", "ok"), ("1.43.0", "bad"), ("2.0", "bad")],
)
def test_versions_of_flower_that_were_not_tried_are_bad(folder, monkeypatch, found, level):
    known = doctor.version
    monkeypatch.setattr(doctor, "version", lambda name: found if name == "flwr" else known(name))
    assert told(examine(folder.path), "flwr", level)


@pytest.mark.parametrize(
    ("ahead", "level"),
    [
        (0.4, "ok"),
        (-0.4, "ok"),
        (3.0, "warn"),
        (-60.0, "warn"),
        (5.0, "bad"),
        (3600.0, "bad"),
        (-3600.0, "bad"),
    ],
)
def test_a_clock_that_flower_would_refuse_is_bad(ahead, level):
    (found,) = check_clock(Health(None, ahead=ahead))
    assert found.level == level


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(RunError, match="neither the folder of a federation nor"):
        examine(tmp_path)


@contextmanager
def serving(folder, answer, *, encrypted=True):
    """Answer one call on the federation's port in the way of a server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder.server_certificate, folder.server_key)
    with socket.create_server(("127.0.0.1", folder.dialed()[1])) as listener:

        def serve():
            try:
                connection = listener.accept()[0]
                wrapped = context.wrap_socket(connection, True) if encrypted else connection
                with wrapped:
                    wrapped.recv(4096)
                    wrapped.sendall(answer)
            except OSError:
                pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        thread.join(5)


def health(date):
    return f"HTTP/1.1 200 OK\r\ndate: {format_datetime(date)}\r\ncontent-length: 0\r\n\r\n".encode()


def test_the_clock_is_held_against_the_servers(folder):
    with serving(folder, health(datetime.now(UTC) - timedelta(hours=1))):
        (found,) = told(examine(folder.site(0).path), "clock")
    assert found.level == "bad"
    assert re.match(r"360\d s ahead of the server's: nodes are rejected", found.message)


def test_a_server_that_answers_is_told_apart_from_something_else(folder):
    with serving(folder, health(datetime.now(UTC))):
        findings = examine(folder.path)
    assert "the server responds" in told(findings, "port", "ok")[0].message
    assert told(findings, "clock", "ok")
    with serving(folder, b"SSH-2.0-OpenSSH_9.6\r\n", encrypted=False):
        findings = examine(folder.path)
    assert "another program listens" in told(findings, "port", "bad")[0].message


def test_why_a_call_failed_is_told(folder, tmp_path):
    other = FederationFolder(tmp_path / "other")
    make_federation(other, 0)
    make_certificates(other)
    port = folder.dialed()[1]
    assert check_health("127.0.0.1", port, folder.ca).failure == "refused"
    assert check_health("no.such.machine.invalid", port, folder.ca).failure == "unknown"
    with serving(folder, b""):
        assert check_health("127.0.0.1", port, other.ca).failure == "untrusted"
    with serving(folder, b"HTTP/1.1 404 no\r\ncontent-length: 0\r\n\r\n"):
        assert check_health("127.0.0.1", port, folder.ca).details == "responds with status 404"
    with socket.create_server(("127.0.0.1", port)):
        assert check_health("127.0.0.1", port, folder.ca, timeout=0.2).failure == "silent"


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_data_without_the_right_to_read_it_is_bad(folder):
    site = folder.site(0)
    server = site.settings()["server"]
    (site.path / "x.npz").touch(mode=0o000)
    site.settings_file.write_text(f'client = 0\nserver = "{server}"\ndata = "x.npz"\n')
    assert told(examine(site.path), "site-0 data", "bad")
