"""Calling a server once, as a node would, to see whether and how it answers."""

from __future__ import annotations

import http.client
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal

Failure = Literal["refused", "unknown", "silent", "untrusted", "other"]


@dataclass(frozen=True)
class Call:
    """How a call went: why it failed, or by how many seconds our clock is ahead of the server's."""

    failure: Failure | None
    told: str = ""
    ahead: float | None = None


def call(host: str, port: int, ca: Path, patience: float = 5.0) -> Call:
    """Ask a SuperLink for its health over TLS, with the authority's certificate."""
    try:
        trust = ssl.create_default_context(cafile=str(ca))
        connection = http.client.HTTPSConnection(host, port, timeout=patience, context=trust)
        try:
            connection.request("GET", "/health")
            answer = connection.getresponse()
        finally:
            connection.close()
    except ssl.SSLCertVerificationError as error:
        return Call("untrusted", f"its certificate is not accepted: {error.verify_message}")
    except ssl.SSLError as error:
        return Call("other", f"no TLS there, or a certificate of ours is damaged: {error.reason}")
    except socket.gaierror:
        return Call("unknown", "no machine of this name is known")
    except ConnectionRefusedError:
        return Call("refused", "nobody listens there")
    except TimeoutError:
        return Call("silent", f"no answer within {patience:.0f} s")
    except (OSError, http.client.HTTPException) as error:
        return Call("other", str(error) or type(error).__name__)
    if answer.status != http.client.OK:
        return Call("other", f"answers with status {answer.status}")
    date = answer.headers.get("date")
    if date is None:
        return Call(None)
    # The server tells whole seconds, so half of one has passed on average.
    ahead = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds() - 0.5
    return Call(None, ahead=ahead)
