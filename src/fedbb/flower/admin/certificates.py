"""Certificates and keys of a federation: made where they are missing, never overwritten.

The authority signs the server's certificate, by which sites authenticate the server (TLS). Each
site has its own key, by which the server authenticates the site: Flower needs a NIST curve in
OpenSSH's format.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedbb.errors import RunError
from fedbb.flower.admin.paths import FederationFolder, SiteFolder

AUTHORITY_DAYS = 3650
SERVER_DAYS = 397
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
EARLIER = timedelta(minutes=10)
"""Certificates are valid from a little earlier on: clocks of sites differ."""

PrivateKey = ec.EllipticCurvePrivateKey
Loader = Callable[[bytes, bytes | None], object]


@dataclass(frozen=True)
class Piece:
    """A certificate or key file: what it is, and whether it was made just now."""

    path: Path
    what: str
    made: bool


def make_certificates(
    folder: FederationFolder,
    hosts: Sequence[str] = (),
    days: int = SERVER_DAYS,
    *,
    keys: int | None = None,
) -> list[Piece]:
    """Make the authority, the server certificate and site keys, as far as they are missing.

    Args:
        folder: the federation's folder.
        hosts: further names and addresses of the server.
        days: how long the server's certificate is valid.
        keys: the number of sites, from the first on, whose keys are made here; all if not given.

    Returns:
        All certificates and keys, old and new.
    """
    folder.check()
    folder.certificates.mkdir(mode=0o700, exist_ok=True)
    pieces = [*_authority(folder), *_server(folder, hosts, days)]
    sites = folder.sites()
    for site in sites:
        pieces.append(_copy_of_authority(folder, site))
    for site in sites[:keys]:
        pieces += make_site_key(site)
    return pieces


def make_site_key(site: SiteFolder) -> list[Piece]:
    """Make the key of a site, unless it or its public key exists."""
    name = site.path.name
    if site.public_key.exists() and not site.key.exists():
        return [Piece(site.public_key, f"public key of {name}, made by the site itself", False)]
    pieces = [_key_file(site.key, f"key of {name}", ec.SECP384R1(), openssh=True)]
    public = load_site_key(site.key).public_key()
    line = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    new = write_new(site.public_key, line + f" {name}\n".encode(), 0o644)
    return [*pieces, Piece(site.public_key, f"public key of {name}", new)]


def sign_server(
    authority: tuple[x509.Certificate, PrivateKey],
    key: PrivateKey,
    hosts: Sequence[str],
    begins: datetime,
    ends: datetime,
) -> x509.Certificate:
    """Return a server certificate for these names and addresses."""
    certificate, signer = authority
    public = key.public_key()
    return (
        _begin(f"fedbb server {hosts[0]}"[:64], certificate.subject, public, begins, ends)
        .add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False
        )
        .sign(signer, hashes.SHA256())
    )


def sign_authority(key: PrivateKey, begins: datetime, ends: datetime) -> x509.Certificate:
    """Return the certificate of an authority that may sign server certificates only."""
    public = key.public_key()
    usage = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return (
        _begin("fedbb federation authority", None, public, begins, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        .sign(key, hashes.SHA256())
    )


def read_certificate(path: Path) -> x509.Certificate:
    """Return the certificate in a file."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is not a readable certificate: {error}") from error


def named_hosts(certificate: x509.Certificate) -> list[str]:
    """Return the names and addresses for which a server certificate is valid."""
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(name.value) for name in extension.value]


def check_server(folder: FederationFolder, hosts: Sequence[str]) -> None:
    """Raise RunError if the server certificate is not valid now for these addresses."""
    certificate = read_certificate(folder.server_certificate)
    missing = [host for host in hosts if host not in named_hosts(certificate)]
    options = "".join(f" --host {host}" for host in missing)
    anew = f"delete it and run: fedbb flower certs {folder.path}{options}"
    if missing:
        raise RunError(f"{folder.server_certificate} is not valid for {', '.join(missing)}; {anew}")
    if certificate.not_valid_after_utc <= datetime.now(UTC):
        raise RunError(
            f"{folder.server_certificate} expired on {certificate.not_valid_after_utc:%Y-%m-%d}; "
            f"{anew}"
        )


def public_bytes(path: Path) -> bytes:
    """Return a site's public key in the format of Flower's server."""
    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise RunError(f"{path} is not a readable public key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise RunError(f"{path} must be an elliptic-curve key, such as `fedbb flower certs` makes")
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def write_new(path: Path, content: bytes, mode: int) -> bool:
    """Write a file with these permissions unless it exists; return whether it was written."""
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    except FileExistsError:
        return False
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return True


def _authority(folder: FederationFolder) -> Iterator[Piece]:
    what = "certificate of the authority"
    if folder.ca.exists() and not folder.ca_key.exists():
        yield Piece(folder.ca, f"{what}, whose key is kept elsewhere", False)
        return
    yield _key_file(folder.ca_key, "key of the authority", ec.SECP256R1())
    if folder.ca.exists():
        yield Piece(folder.ca, what, False)
        return
    begins = datetime.now(UTC) - EARLIER
    ends = begins + timedelta(days=AUTHORITY_DAYS)
    certificate = sign_authority(_load_key(folder.ca_key), begins, ends)
    yield Piece(folder.ca, what, write_new(folder.ca, _pem(certificate), 0o644))


def _server(folder: FederationFolder, hosts: Sequence[str], days: int) -> Iterator[Piece]:
    yield _key_file(folder.server_key, "key of the server", ec.SECP256R1())
    path = folder.server_certificate
    wanted = list(dict.fromkeys([folder.dialed()[0], *hosts, *LOCAL_HOSTS]))
    if path.exists():
        known = named_hosts(read_certificate(path))
        missing = [host for host in wanted if host not in known]
        lacks = (
            f", WITHOUT {', '.join(missing)}: delete it to have it made again" if missing else ""
        )
        yield Piece(path, f"certificate of the server for {', '.join(known)}{lacks}", False)
        return
    authority, signer = _signer(folder)
    begins = datetime.now(UTC) - EARLIER
    ends = min(begins + timedelta(days=days), authority.not_valid_after_utc)
    certificate = sign_server(
        (authority, signer), _load_key(folder.server_key), wanted, begins, ends
    )
    new = write_new(path, _pem(certificate), 0o644)
    yield Piece(path, f"certificate of the server for {', '.join(wanted)}, {days} days", new)


def _signer(folder: FederationFolder) -> tuple[x509.Certificate, PrivateKey]:
    """Return the authority's certificate and key.

    Raises:
        RunError: The key is kept elsewhere, or belongs to another certificate.
    """
    authority = read_certificate(folder.ca)
    if not folder.ca_key.exists():
        raise RunError(
            f"{folder.server_certificate} is missing, and {folder.ca_key} is needed to sign a new "
            "one: put it back for this command"
        )
    key = _load_key(folder.ca_key)
    if key.public_key() != authority.public_key():
        raise RunError(f"{folder.ca_key} is not the key of {folder.ca}")
    return authority, key


def _copy_of_authority(folder: FederationFolder, site: SiteFolder) -> Piece:
    content = folder.ca.read_bytes()
    what = f"certificate of the authority for {site.path.name}"
    new = write_new(site.ca, content, 0o644)
    if site.ca.read_bytes() != content:
        what += f", NOT that of {folder.ca}: delete it to have it copied again"
    return Piece(site.ca, what, new)


def _key_file(path: Path, what: str, curve: ec.EllipticCurve, openssh: bool = False) -> Piece:
    if path.exists():
        return Piece(path, what, False)
    private = serialization.PrivateFormat
    content = ec.generate_private_key(curve).private_bytes(
        serialization.Encoding.PEM,
        private.OpenSSH if openssh else private.PKCS8,
        serialization.NoEncryption(),
    )
    return Piece(path, what, write_new(path, content, 0o600))


def load_site_key(path: Path) -> PrivateKey:
    """Return the private key of a site."""
    return _elliptic(path, serialization.load_ssh_private_key)


def _load_key(path: Path) -> PrivateKey:
    return _elliptic(path, serialization.load_pem_private_key)


def _elliptic(path: Path, load: Loader) -> PrivateKey:
    try:
        key = load(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise RunError(f"{path} is not a readable private key: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise RunError(f"{path} must be an elliptic-curve key, such as `fedbb flower certs` makes")
    return key


def _begin(
    name: str,
    issuer: x509.Name | None,
    public: ec.EllipticCurvePublicKey,
    begins: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return x509.CertificateBuilder(
        issuer_name=issuer or subject,
        subject_name=subject,
        public_key=public,
        serial_number=x509.random_serial_number(),
        not_valid_before=begins,
        not_valid_after=ends,
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
