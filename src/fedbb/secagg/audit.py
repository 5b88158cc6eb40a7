"""What the server of a private run saw, in its audit file, and what follows about single clients.

Nothing in here needs cryptography, so that audits can be read on any installation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbb._util.files import replacing
from fedbb.errors import RunError
from fedbb.records import ClientFailure, FloatArray, IntArray
from fedbb.secagg.cbr import Agreement, Sums, flatten_measured
from fedbb.secagg.dp import NoiseTerms, epsilon, most_rounds

if TYPE_CHECKING:
    from fedbb.secagg.client_secrets import RosterKeys
    from fedbb.secagg.round import StatisticsResult

AUDIT = "audit.json"
FORMAT = "fedbb audit 1"
DP = "dp"
"""The entry of an audit about differential privacy."""

_CERTAIN = 1e-6


@dataclass(frozen=True)
class RoundAudit:
    """Everything that the server saw in a round: the clients of the sum, and the sum.

    Args:
        round: its number.
        clients: whose vectors were summed.
        failures: the other chosen clients, and why they are missing.
        attempts: how many attempts with fresh keys it took.
        weight: ΣW.
        steps: ΣW·a/ΣW, which is 1 unless changes are normalized by their steps.
        change: the norm of the model's change.
        sha256: the digest of the resulting model.
        false_shares: clients that gave a false share of a secret, which was not used.
        statistics: the names of the statistics whose sums over these clients it saw besides.
    """

    round: int
    clients: tuple[int, ...]
    failures: tuple[ClientFailure, ...]
    attempts: int
    weight: float
    steps: float
    change: float
    sha256: str
    false_shares: tuple[ClientFailure, ...] = ()
    statistics: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the round as plain values."""
        false_shares = _plain_failures(self.false_shares)
        return {
            **({"false_shares": false_shares} if false_shares else {}),
            **({"statistics": list(self.statistics)} if self.statistics else {}),
            "round": self.round,
            "clients": list(self.clients),
            "absent": _plain_failures(self.failures),
            "attempts": self.attempts,
            "weight": self.weight,
            "steps": self.steps,
            "change": self.change,
            "sha256": self.sha256,
        }


@dataclass(frozen=True, eq=False)
class AuditFile:
    """The audit of a run on disk; entries are added and never removed."""

    path: Path
    content: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> AuditFile:
        """Return the audit of the run in a folder."""
        path = folder / AUDIT
        try:
            return cls(path, json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise RunError(f"{path} cannot be read: {error}") from error

    @property
    def confirmed(self) -> frozenset[int]:
        """The clients that confirmed the sums of the statistics, who alone take part in rounds."""
        return frozenset(int(client) for client in self.content["statistics"]["confirmations"])

    @property
    def sums(self) -> Sums:
        """The sums of the statistics, as the clients received them."""
        found = self.content["statistics"]
        row = tuple(flatten_measured(self.measured).tolist())
        return Sums(int(found["samples"]), float(found["evenness"]), tuple(found["clients"]), row)

    @property
    def measured(self) -> dict[str, IntArray]:
        """The sums of what else the clients measured before round 1, by name."""
        found = self.content["statistics"].get("measured", {})
        return {name: np.array(values, dtype=np.int64) for name, values in found.items()}

    def add_round(self, entry: RoundAudit) -> None:
        """Add a round, unless a resumed run repeats it bit for bit."""
        if DP in self.content:
            groups = [(int(known["round"]), known["clients"]) for known in self.content["rounds"]]
            account(self.content[DP], [*groups, (entry.round, entry.clients)])
        self._add("rounds", entry.as_json())

    def add_measured(self, number: int, clients: Sequence[int], names: Sequence[str]) -> None:
        """Add the clients and the names of the sums of statistics of a round's merged model."""
        self._add("measured", {"round": number, "clients": [*clients], "statistics": [*names]})

    def add_scores(self, number: int, clients: Sequence[int], samples: Mapping[str, int]) -> None:
        """Add the clients and sample numbers of the sum of a round's scores."""
        self._add("scores", {"round": number, "clients": [*clients], "samples": {**samples}})

    def save(self) -> None:
        """Write the audit."""
        with replacing(self.path) as file:
            file.write((json.dumps(self.content, indent=1, ensure_ascii=False) + "\n").encode())

    def _add(self, kind: str, entry: dict[str, Any]) -> None:
        known = self.content.setdefault(kind, [])
        if entry not in known:
            known.append(entry)
            self.save()


def begin_audit(
    folder: Path,
    run: str,
    privacy: str,
    keys: RosterKeys,
    agreed: tuple[Agreement, StatisticsResult],
    *,
    simulated: bool = False,
) -> AuditFile:
    """Write what the server saw before round 1; rounds are added later."""
    agreement, statistics = agreed
    roster, terms, sums = keys.roster, agreement.terms, statistics.sums
    members = len(roster.members)
    measured = {name: values.tolist() for name, values in statistics.measured.items()}
    content: dict[str, Any] = {
        "format": FORMAT,
        "privacy": privacy,
        "roster": roster.digest,
        "clients": members,
        "threshold": roster.needed(members),
        "least": roster.least,
        **({} if agreement.graph is None else {"graph": asdict(agreement.graph)}),
        "max_weight": agreement.bounds.max_weight,
        "max_norm": agreement.bounds.max_norm,
        "gamma": terms.gamma,
        "floor": terms.floor,
        "statistics": {
            "samples": sums.samples,
            "evenness": sums.evenness,
            "clients": list(sums.clients),
            "absent": _plain_failures(statistics.failures),
            "attempts": statistics.attempts,
            **({"measured": measured} if measured else {}),
            "commitments": {str(k): digest for k, digest in statistics.digests(roster).items()},
            "letters": _hex(statistics.commitments),
            "confirmations": _hex(statistics.confirmations),
        },
        "rounds": [],
        **({} if agreement.noise is None else {DP: _plain_dp(agreement.noise, simulated)}),
        "run": run,
        "enrolment": keys.enrolment.hex(),
    }
    audit = AuditFile(folder / AUDIT, content)
    audit.save()
    return audit


def account(entry: dict[str, Any], groups: Sequence[tuple[int, Sequence[int]]]) -> None:
    """Write the privacy loss of the rounds so far into the entry of differential privacy."""
    noise, delta, rate = entry["noise"], entry["delta"], entry["rate"]
    entry["rounds"] = most_rounds(groups)
    entry["epsilon"] = epsilon(noise, entry["rounds"], delta)
    if rate < 1:
        sums = len({number for number, _ in groups})
        entry["epsilon_sampled"] = epsilon(noise, sums, delta, rate)


def describe_dp(content: Mapping[str, Any]) -> str | None:
    """Return the privacy loss of a run in a sentence; None without differential privacy."""
    if DP not in content:
        return None
    entry = content[DP]
    sampled = entry.get("epsilon_sampled")
    hidden = "" if sampled is None else f" ({sampled:.3g} if nobody knew who took part)"
    seeded = "; a simulation, whose noise follows from the seed and protects nobody"
    source = seeded if entry["simulated"] else ""
    return (
        f"differential privacy of model changes, client level: ε = {entry['epsilon']:.3g}{hidden} "
        f"at δ = {entry['delta']:g} for a client in {entry['rounds']} rounds{source}"
    )


def read_dp(folder: Path) -> str | None:
    """Return the privacy loss of the run in a folder; None without differential privacy."""
    return describe_dp(AuditFile.read(folder).content) if (folder / AUDIT).exists() else None


def _plain_dp(terms: NoiseTerms, simulated: bool) -> dict[str, Any]:
    return {
        "clip": terms.clip,
        "sensitivity": terms.sensitivity,
        "noise": terms.multiplier,
        "least": terms.least,
        "delta": terms.delta,
        "rate": terms.rate,
        "simulated": simulated,
        "rounds": 0,
        "epsilon": 0.0,
    }


def solve_weights(
    groups: Sequence[Sequence[int]], sums: Sequence[float], clients: int
) -> dict[int, float]:
    """Return the clients' weights that leak from sums over changing groups of clients.

    A client's weight leaks if some linear combination of the groups is that client alone. From
    sums over {0, 1, 2} and {1, 2} the weight of client 0 follows; of the other two only their sum.

    Args:
        groups: the clients of each sum.
        sums: the sum of the weights of each group.
        clients: how many clients there are.

    Returns:
        The weights that follow, by client.
    """
    membership = np.zeros((len(groups), clients))
    for row, group in enumerate(groups):
        membership[row, list(group)] = 1.0
    inverse: FloatArray = np.asarray(np.linalg.pinv(membership), dtype=np.float64)
    found = np.diag(inverse @ membership) > 1 - _CERTAIN
    solution = inverse @ np.asarray(sums, dtype=np.float64)
    return {client: float(solution[client]) for client in np.flatnonzero(found).tolist()}


def _plain_failures(failures: tuple[ClientFailure, ...]) -> list[dict[str, Any]]:
    return [{"client": failure.client, "reason": failure.reason} for failure in failures]


def _hex(messages: Mapping[int, bytes]) -> dict[str, str]:
    return {str(client): data.hex() for client, data in sorted(messages.items())}
