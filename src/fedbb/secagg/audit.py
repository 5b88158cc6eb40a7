"""What the server of a private run saw, as plain values that go into its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedbb.errors import PrivacyError
from fedbb.records import ClientFailure
from fedbb.secagg.member import Agreement
from fedbb.secagg.protocol.messages import unseal
from fedbb.secagg.protocol.roster import Roster
from fedbb.secagg.statistics import Sums
from fedbb.secagg.statistics_round import COMMIT, Statistics

FORMAT = "fedbb audit 1"


@dataclass(frozen=True)
class RoundSeen:
    """All that the server saw in a round: who is in the sum, and the sum.

    Args:
        round: its number.
        clients: whose parts were added up.
        absences: who was chosen and is not among them, and why.
        attempts: how often it took fresh keys.
        weight: ΣW.
        steps: ΣW·a/ΣW, which is 1 unless changes count by their steps.
        change: how far the sum moved the model, as a norm.
        sha256: of the model that came of it.
    """

    round: int
    clients: tuple[int, ...]
    absences: tuple[ClientFailure, ...]
    attempts: int
    weight: float
    steps: float
    change: float
    sha256: str

    def as_json(self) -> dict[str, Any]:
        """Return the round as plain values."""
        return {
            "round": self.round,
            "clients": list(self.clients),
            "absent": _plain_absences(self.absences),
            "attempts": self.attempts,
            "weight": self.weight,
            "steps": self.steps,
            "change": self.change,
            "sha256": self.sha256,
        }


def opening(
    privacy: str, roster: Roster, agreement: Agreement, statistics: Statistics
) -> dict[str, Any]:
    """Return what the server saw before round 1, as plain values; rounds are added later."""
    terms, sums = agreement.terms, statistics.sums
    members = len(roster.members)
    return {
        "format": FORMAT,
        "privacy": privacy,
        "roster": roster.digest,
        "clients": members,
        "threshold": roster.needed(members),
        "least": roster.least,
        "max_weight": agreement.bounds.max_weight,
        "max_norm": agreement.bounds.max_norm,
        "gamma": terms.gamma,
        "floor": terms.floor,
        "statistics": {
            "samples": sums.samples,
            "evenness": sums.evenness,
            "clients": list(sums.clients),
            "absent": _plain_absences(statistics.absences),
            "attempts": statistics.attempts,
            "commitments": {
                str(client): commitment_in(letter, roster, client)
                for client, letter in sorted(statistics.commitments.items())
            },
            "letters": _hex(statistics.commitments),
            "confirmations": _hex(statistics.confirmations),
        },
        "rounds": [],
    }


def commitment_in(letter: bytes, roster: Roster, client: int) -> str:
    """Return the commitment in a client's signed letter."""
    return str(unseal(letter, roster, COMMIT, client).facts["sha256"])


def sums_in(audit: Mapping[str, Any]) -> Sums:
    """Return the sums that an audit tells."""
    try:
        found = audit["statistics"]
        clients = tuple(int(client) for client in found["clients"])
        return Sums(int(found["samples"]), float(found["evenness"]), clients)
    except (KeyError, TypeError, ValueError) as error:
        raise PrivacyError(f"the audit tells no sums: {error}") from error


def confirmed_in(audit: Mapping[str, Any]) -> frozenset[int]:
    """Return the clients that confirmed the sums, who alone take part in rounds."""
    return frozenset(int(client) for client in audit["statistics"]["confirmations"])


def _plain_absences(absences: tuple[ClientFailure, ...]) -> list[dict[str, Any]]:
    return [{"client": absence.client, "reason": absence.reason} for absence in absences]


def _hex(letters: Mapping[int, bytes]) -> dict[str, str]:
    return {str(client): letter.hex() for client, letter in sorted(letters.items())}
