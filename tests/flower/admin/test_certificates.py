import ssl
import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    load_pem_private_key,
    load_ssh_private_key,
)

from fedbb.errors import RunError
from fedbb.flower.admin.certificates import (
    check_server,
    load_site_key,
    make_certificates,
    make_site_key,
    named_hosts,
    public_bytes,
    read_certificate,
    sign_server,
    write_new,
)
from fedbb.flower.admin.paths import FederationFolder, SiteFolder
from fedbb.flower.admin.templates import make_federation


@pytest.fixture
def folder(tmp_path):
    folder = FederationFolder(tmp_path / "federation")
    make_federation(folder, 2, "hospital.example:8443")
    return folder


def test_everything_that_is_missing_is_made(folder):
    pieces = make_certificates(folder)
    assert all(piece.made for piece in pieces)
    assert all(piece.path.exists() for piece in pieces)
    assert len(pieces) == 4 + 2 * 3


def test_nothing_is_written_over(folder):
    first = {piece.path: piece.path.read_bytes() for piece in make_certificates(folder)}
    again = make_certificates(folder)
    assert not any(piece.made for piece in again)
    assert {piece.path: piece.path.read_bytes() for piece in again} == first


def test_a_lost_certificate_is_made_anew_for_the_key_that_is_there(folder):
    make_certificates(folder)
    key = folder.server_key.read_bytes()
    folder.server_certificate.unlink()
    made = [piece.path for piece in make_certificates(folder) if piece.made]
    assert made == [folder.server_certificate]
    assert folder.server_key.read_bytes() == key
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder.server_certificate, folder.server_key)  # the two belong together


def test_the_authority_gets_no_second_key_when_its_own_is_kept_elsewhere(folder, tmp_path):
    make_certificates(folder)
    elsewhere = folder.ca_key.rename(tmp_path / "ca.key")
    make_federation(folder, 3, "hospital.example:8443")
    made = [piece.path for piece in make_certificates(folder) if piece.made]
    site = folder.site(2)
    assert made == [site.ca, site.key, site.public_key]
    assert not folder.ca_key.exists()
    folder.server_certificate.unlink()
    with pytest.raises(RunError, match=r"ca\.key is needed to sign"):
        make_certificates(folder)
    elsewhere.rename(folder.ca_key)
    read_certificate(make_certificates(folder)[3].path).verify_directly_issued_by(
        read_certificate(folder.ca)
    )


def test_the_key_of_another_authority_signs_nothing(folder, tmp_path):
    other = FederationFolder(tmp_path / "other")
    make_federation(other, 1, "hospital.example:8443")
    for one in (folder, other):
        make_certificates(one)
    folder.server_certificate.unlink()
    folder.ca_key.write_bytes(other.ca_key.read_bytes())
    with pytest.raises(RunError, match=r"ca\.key is not the key of .*ca\.crt"):
        make_certificates(folder)


def test_private_keys_are_readable_by_their_owner_only(folder):
    make_certificates(folder)
    keys = [folder.ca_key, folder.server_key, *(site.key for site in folder.sites())]
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_the_server_certificate_holds_for_what_sites_call_and_for_what_is_asked(folder):
    make_certificates(folder, ["10.0.0.7", "server.local"])
    certificate = read_certificate(folder.server_certificate)
    hosts = ["hospital.example", "10.0.0.7", "server.local", "localhost", "127.0.0.1", "::1"]
    assert named_hosts(certificate) == hosts
    certificate.verify_directly_issued_by(read_certificate(folder.ca))


def test_a_name_that_the_kept_certificate_lacks_is_told(folder):
    make_certificates(folder)
    told = [piece.what for piece in make_certificates(folder, ["10.0.0.7"])]
    assert any("WITHOUT 10.0.0.7: delete it" in what for what in told)


def test_a_certificate_of_another_authority_is_told_apart(folder, tmp_path):
    other = FederationFolder(tmp_path / "other")
    make_federation(other, 1)
    make_certificates(folder)
    make_certificates(other)
    with pytest.raises(InvalidSignature):
        read_certificate(other.server_certificate).verify_directly_issued_by(
            read_certificate(folder.ca)
        )
    folder.site(0).ca.write_bytes(other.ca.read_bytes())
    told = [piece.what for piece in make_certificates(folder)]
    assert sum("NOT that of" in what for what in told) == 1


def test_the_server_certificate_ends_when_it_is_told_to_and_never_after_its_authority(folder):
    make_certificates(folder, days=100_000)
    server, authority = map(read_certificate, (folder.server_certificate, folder.ca))
    assert server.not_valid_after_utc == authority.not_valid_after_utc
    assert server.not_valid_before_utc < datetime.now(UTC) - timedelta(minutes=9)


def test_a_server_is_not_started_with_a_certificate_that_nobody_would_accept(folder):
    make_certificates(folder)
    check_server(folder, ["127.0.0.1", "localhost"])
    with pytest.raises(RunError, match=r"not valid for 10.0.0.7; .*certs .* --host 10.0.0.7"):
        check_server(folder, ["10.0.0.7"])
    folder.server_certificate.unlink()
    authority = read_certificate(folder.ca), load_pem(folder.ca_key)
    then = datetime.now(UTC) - timedelta(days=1)
    expired = sign_server(
        authority, load_pem(folder.server_key), ["localhost"], then - timedelta(days=1), then
    )
    folder.server_certificate.write_bytes(expired.public_bytes(Encoding.PEM))
    with pytest.raises(RunError, match="expired on"):
        check_server(folder, ["localhost"])


def load_pem(path):
    return load_pem_private_key(path.read_bytes(), None)


def test_node_keys_are_what_flower_takes(folder):
    make_certificates(folder)
    site = folder.site(1)
    key = load_ssh_private_key(site.key.read_bytes(), None)
    assert isinstance(key.curve, ec.SECP384R1)
    assert site.key.read_bytes().startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    assert site.public_key.read_bytes().startswith(b"ecdsa-sha2-nistp384 ")
    assert site.public_key.read_bytes().endswith(b" site-1\n")
    assert load_site_key(site.key).public_key() == key.public_key()
    assert public_bytes(site.public_key).startswith(b"-----BEGIN PUBLIC KEY-----")


def test_each_site_has_a_key_of_its_own(folder):
    make_certificates(folder)
    assert len({public_bytes(site.public_key) for site in folder.sites()}) == 2


def test_a_site_that_made_its_key_itself_keeps_it_to_itself(folder, tmp_path):
    at_site = SiteFolder(tmp_path / "site-0")
    at_site.path.mkdir()
    make_site_key(at_site)
    folder.site(0).public_key.write_bytes(at_site.public_key.read_bytes())
    told = {piece.path: piece.what for piece in make_certificates(folder)}
    assert "made by the site itself" in told[folder.site(0).public_key]
    assert not folder.site(0).key.exists()


def test_sites_that_make_their_own_keys_get_none(folder):
    make_certificates(folder, keys=1)
    assert [site.key.exists() for site in folder.sites()] == [True, False]
    assert all(site.ca.exists() for site in folder.sites())


def test_a_lost_public_half_comes_back_from_the_private_one(folder):
    make_certificates(folder)
    site = folder.site(0)
    before = site.public_key.read_bytes()
    site.public_key.unlink()
    make_site_key(site)
    assert site.public_key.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN CERTIFICATE-----\n\n"])
def test_damaged_files_are_named(folder, content):
    make_certificates(folder)
    for path, read in (
        (folder.ca, read_certificate),
        (folder.site(0).key, load_site_key),
        (folder.site(0).public_key, public_bytes),
    ):
        path.write_bytes(content)
        with pytest.raises(RunError, match=path.name):
            read(path)


def test_a_key_of_another_kind_is_refused_by_name(tmp_path):
    path = tmp_path / "node.pub"
    path.write_text(
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl a\n"
    )
    with pytest.raises(RunError, match="must be an elliptic-curve key"):
        public_bytes(path)


def test_a_new_file_is_private_from_its_first_moment_and_an_old_one_stays(tmp_path):
    path = tmp_path / "key"
    assert write_new(path, b"one", 0o600)
    assert not write_new(path, b"two", 0o600)
    assert path.read_bytes() == b"one"


def test_a_folder_that_is_no_federation_is_refused(tmp_path):
    with pytest.raises(RunError, match="is not a federation"):
        make_certificates(FederationFolder(tmp_path))
