"""The health of a server: one request over TLS, as a node would make it."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal

Failure = Literal["refused", "unknown", "silent", "untrusted", "other"]


@dataclass(frozen=True)
class Health:
    """Why a request failed, or by how many seconds our clock is ahead of the server's."""

    failure: Failure | None
    details: str = ""
    ahead: float | None = None


def check_health(host: str, port: int, ca: Path, timeout: float = 5.0) -> Health:
    """Ask a SuperLink for its health over TLS.

    Args:
        host: the server's name or address.
        port: the server's port.
        ca: the certificate of the federation's authority.
        timeout: seconds to wait for the response.
    """
    try:
        trust = ssl.create_default_context(cafile=str(ca))
        connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=trust)
        try:
            connection.request("GET", "/health")
            response = connection.getresponse()
        finally:
            connection.close()
    except ssl.SSLCertVerificationError as error:
        return Health("untrusted", f"its certificate is not accepted: {error.verify_message}")
    except ssl.SSLError as error:
        return Health("other", f"no TLS there, or a certificate of ours is damaged: {error.reason}")
    except socket.gaierror:
        return Health("unknown", "no machine of this name is known")
    except ConnectionRefusedError:
        return Health("refused", "no program listens there")
    except TimeoutError:
        return Health("silent", f"no response within {timeout:.0f} s")
    except (OSError, http.client.HTTPException) as error:
        return Health("other", str(error) or type(error).__name__)
    if response.status != http.client.OK:
        return Health("other", f"responds with status {response.status}")
    date = response.headers.get("date")
    if date is None:
        return Health(None)
    # The server sends whole seconds, so half a second has passed on average.
    ahead = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds() - 0.5
    return Health(None, ahead=ahead)


def wait_until_healthy(host: str, port: int, ca: Path, seconds: float) -> bool:
    """Wait for a SuperLink to respond, and tell whether it does."""
    limit = time.monotonic() + seconds
    while not (healthy := check_health(host, port, ca).failure is None):
        if time.monotonic() >= limit:
            break
        time.sleep(0.1)
    return healthy
