"""The secure sums of a run: the statistics before round 1, and one sum of changes per round.

Before round 1 clients commit to their numbers, the server sums them, and clients confirm the sums.
These are computed once in a run and never over a part of the clients: two sums that differ in one
client would reveal that client's numbers.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedbb.aggregation.label_counts import FederationCounts
from fedbb.aggregation.merging import update_norm
from fedbb.aggregation.server_step import Turn
from fedbb.compression import Compression
from fedbb.errors import PrivacyError, QuorumError, RefusedError, TooFewError
from fedbb.evaluation.sites import OWN_TEST, SUMMED_LENGTH, SiteSpread, spreads_from_sums
from fedbb.records import ClientFailure, ClientReport, FloatArray, IntArray, ModelState, Tensors
from fedbb.rounds.round import NO_SERVER_STATE, RoundPolicy, RoundResult, repeat_until_quorum
from fedbb.rounds.server_steps import NO_SERVER_STEPS, ServerSteps
from fedbb.secagg.audit import AuditFile, RoundAudit
from fedbb.secagg.cbr import (
    SCALARS,
    Agreement,
    Measured,
    Sums,
    Terms,
    abstain,
    combine,
    commitment,
    count_parameters,
    flatten_measured,
    read_sums,
    split_measured,
    split_measured_statistics,
    split_statistics,
    spread_drawn,
)
from fedbb.secagg.client_secrets import ClientSecrets, RosterKeys
from fedbb.secagg.masked.client import MaskedSumClient
from fedbb.secagg.masked.server import MaskedSumServer
from fedbb.secagg.primitives.keys import Entropy, Identity
from fedbb.secagg.protocol.canonical import read_hex, read_integer
from fedbb.secagg.protocol.messages import AttemptId, SignedMessage, sign_message, verify_message
from fedbb.secagg.protocol.replay_guard import MEASURING, SITE_SCORING, Journal, RunLimit
from fedbb.secagg.protocol.roster import AGGREGATOR, LEAST, Roster
from fedbb.secagg.protocol.secure_aggregation import (
    Accept,
    SecureAggregation,
    SecureAggregationClient,
    StageExchange,
    SumRequest,
    SumResult,
    Transport,
)
from fedbb.secagg.view import view_digest
from fedbb.state import digest
from fedbb.statistics import Statistic, due, moments_of, statistic_shapes

log = logging.getLogger("fedbb")

MASKED = "masked"
"""The scheme of every sum but the statistics, for which a recipe may choose `bfv`."""


def sum_server(scheme: str, keys: RosterKeys) -> SecureAggregation:
    """Return the server's side of a scheme."""
    if scheme == MASKED:
        return MaskedSumServer(keys.roster, keys.identity)
    # BFV needs an extra of its own.
    from fedbb.secagg.bfv.sums import BfvSumServer

    return BfvSumServer(keys.roster, keys.identity)


def sum_client(
    scheme: str,
    client: int,
    identity: Identity,
    roster: Roster,
    journal: Journal,
    *,
    run: str,
    rounds: int | None = None,
    runs: RunLimit | None = None,
) -> SecureAggregationClient:
    """Return the client's side of a scheme, in one run."""
    if scheme == MASKED:
        return MaskedSumClient(client, identity, roster, journal, run, rounds, runs)
    from fedbb.secagg.bfv.sums import BfvSumClient

    return BfvSumClient(client, identity, roster, journal, run, rounds, runs)


COMMIT, CONFIRM = "commit", "confirm"
"""Stages before and after the sum itself."""

STATISTICS_ROUND = 0
"""The round in which the statistics are summed."""

LENGTH = 3
_DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True)
class StatisticsResult:
    """The sums, and what an auditor needs.

    Args:
        sums: the sums over all clients that stayed to the end.
        commitments: each client's commitment, signed, as it sent it.
        confirmations: each client's confirmation of the sums, signed, as it sent it.
        failures: who is missing and why.
        attempts: how many attempts the sum took.
        measured: the sums of what else the clients measured, by name.
    """

    sums: Sums
    commitments: Mapping[int, bytes]
    confirmations: Mapping[int, bytes]
    failures: tuple[ClientFailure, ...] = ()
    attempts: int = 1
    measured: Measured = field(default_factory=dict)

    def digests(self, roster: Roster) -> dict[int, str]:
        """Return each client's commitment as it stands in its signed message."""
        return {
            client: str(verify_message(data, roster, COMMIT, client).facts["sha256"])
            for client, data in sorted(self.commitments.items())
        }


@dataclass(frozen=True, eq=False)
class StatisticsRound:
    """The server's side; `identity` is the roster's aggregator.

    `like` holds integers with the names and shapes of what clients measure besides.
    """

    run: str
    roster: Roster
    identity: Identity
    agreement: Agreement
    entropy: Entropy = os.urandom
    like: Measured = field(default_factory=dict)

    def __call__(
        self, aggregation: SecureAggregation, clients: Sequence[int], transport: Transport
    ) -> StatisticsResult:
        """Return the sums over the clients that committed and stayed to the end."""
        attempt_id = AttemptId.draw(self.run, STATISTICS_ROUND, 1, self.entropy)
        exchange = StageExchange(self.roster, self.identity, attempt_id, transport)
        commitments: dict[int, bytes] = {}
        confirmations: dict[int, bytes] = {}
        able = exchange.broadcast(COMMIT, clients, _store_in(commitments), {})
        view = view_digest(self.agreement)
        length = LENGTH + len(flatten_measured(self.like))
        request = SumRequest(self.run, STATISTICS_ROUND, length, whole=True, view=view)
        total = aggregation(request, able, transport)
        sums = read_sums(np.asarray(total.values, np.int64), total.clients, self.agreement.terms)
        measured = split_measured(sums.measured, self.like)
        check_label_counts(measured, sums.samples)
        facts = {"sums": total.values.tolist(), "clients": list(total.clients)}
        receipts = [total.receipt] if total.receipt else []
        agreed = exchange.broadcast(
            CONFIRM, total.clients, _store_in(confirmations), facts, receipts
        )
        exchange.require(CONFIRM, agreed, self.roster.needed(len(total.clients)))
        failures = sorted((*exchange.failures, *total.failures), key=lambda gone: gone.client)
        return StatisticsResult(
            sums, commitments, confirmations, tuple(failures), total.attempts, measured
        )


def _store_in(found: dict[int, bytes]) -> Accept:
    """Accept signed messages with a digest, and store them."""

    def accept(message: SignedMessage, data: bytes) -> None:
        read_hex(message.facts.get("sha256"), "a digest", _DIGEST)
        found[message.sender] = data

    return accept


@dataclass(frozen=True, eq=False)
class StatisticsClient:
    """The client's side, for one run and roster."""

    run: str
    client: int
    roster: Roster
    secrets: ClientSecrets
    journal: Journal

    def commit_statistics(self, data: bytes) -> bytes:
        """Return a signed commitment to the client's numbers."""
        message = self._read(data, COMMIT)
        return self._sign(message, commitment(self.secrets.nonce, self.secrets.declared))

    def confirm(self, data: bytes, terms: Terms) -> tuple[Sums, bytes]:
        """Return the sums and this client's signature of them, or refuse them."""
        message = self._read(data, CONFIRM)
        clients = message.clients("clients")
        if self.client not in clients or len(clients) < self.roster.least:
            raise RefusedError("the sums are over too few clients, or without this one")
        totals = _totals(message.facts.get("sums"), len(self.secrets.declared))
        sums = read_sums(totals, clients, terms)
        if self.roster.privacy != MASKED:
            self._check_receipt(message, totals)
        return sums, self._sign(message, hashlib.sha256(data).hexdigest())

    def _check_receipt(self, message: SignedMessage, totals: IntArray) -> None:
        """Refuse sums that the key-holder did not decrypt, or not with this client's numbers."""
        from fedbb.secagg.bfv.sums import verify_receipt

        if len(message.parts) != 1:
            raise RefusedError("the sums come without the receipt of the key-holder")
        verify_receipt(message.parts[0], self.roster, self.client, self.journal, totals)

    def _read(self, data: bytes, stage: str) -> SignedMessage:
        message = verify_message(data, self.roster, stage, AGGREGATOR)
        if (message.attempt_id.run, message.attempt_id.round) != (self.run, STATISTICS_ROUND):
            raise RefusedError(
                f"a message of stage {stage} is about a run that this client did not join"
            )
        return message

    def _sign(self, message: SignedMessage, digest: str) -> bytes:
        answer = SignedMessage(message.attempt_id, message.stage, self.client, {"sha256": digest})
        return sign_message(answer, self.roster, self.secrets.identity)


def check_label_counts(measured: Measured, samples: int) -> None:
    """Refuse sums of label counts that are more than the samples of all clients."""
    cases = measured.get(FederationCounts.name)
    if cases is not None and np.any(cases.sum(axis=0) > samples):
        raise PrivacyError(
            f"the clients count more cases of a class than their {samples} samples: some client "
            "violates the agreement"
        )


def _totals(value: Any, length: int) -> IntArray:
    if not isinstance(value, list) or len(value) != length:
        raise RefusedError(f"the sums must be {length} integers")
    return np.array([read_integer(entry, "a sum", most=2**62) for entry in value], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class RoundWork:
    """What the clients of a sum receive and do in a round.

    Args:
        round: the number of the round.
        state: the model.
        broadcast: what is sent beside it.
        measure: whether they compute statistics of the model, which is the merged one, and do not
            train.
    """

    round: int
    state: ModelState
    broadcast: Tensors
    measure: bool = False

    @property
    def sum_number(self) -> int:
        """The number of the sum: that of the round, or that of its further sum."""
        return self.round + (MEASURING if self.measure else 0)


OpenTransport = Callable[[RoundWork], Transport]
"""Opens the transport to the clients of a sum."""

_ROUNDING = 2.0**-30
"""A generous bound of the rounding error of a sum of weights in fixed point."""


@dataclass(frozen=True, eq=False)
class SecureRound:
    """A round in which the server learns who took part, ΣW·Δ, ΣW and sums of statistics.

    A method with statistics of the merged model has a second sum in a round, over those clients of
    the first sum that stay: they receive the merged model, and the server their sums.

    Args:
        aggregation: the scheme that sums the clients' vectors.
        open_transport: opens the transport to the clients of a round.
        run: the name of the run.
        clients: how many clients there are to choose from.
        members: those that confirmed the sums of the statistics.
        policy: the quorum of a round and the number of its attempts.
        record: stores what the server saw in the first sum.
        record_measured: stores the round, the clients and the names of a second sum.
        view: returns the view of the clients of a sum.
        samples: Σn, from which the scale of the second sum follows.
        server_steps: the method's server steps in this run.
        statistics: the method's statistics, all of which are summed.
        compression: the method's compression; only numbers that it draws enter the sum.
        seed: the seed of the run, from which the drawn numbers follow.
    """

    aggregation: SecureAggregation
    open_transport: OpenTransport
    run: str
    clients: int
    members: frozenset[int]
    policy: RoundPolicy
    record: Callable[[RoundAudit], None]
    record_measured: Callable[[int, Sequence[int], Sequence[str]], None]
    view: Callable[[RoundWork], str]
    samples: int
    server_steps: ServerSteps = NO_SERVER_STEPS
    statistics: tuple[Statistic, ...] = ()
    compression: Compression | None = None
    seed: int = 0

    @property
    def shares(self) -> None:
        """None: all clients are chosen alike, since their sizes are not known."""
        return

    def __call__(
        self, number: int, state: ModelState, chosen: IntArray, server: Tensors = NO_SERVER_STATE
    ) -> RoundResult:
        """Return the result of a round that starts from this state."""
        able = [int(client) for client in chosen if int(client) in self.members]
        unconfirmed = tuple(
            ClientFailure(int(client), "took no part in the statistics")
            for client in chosen
            if int(client) not in self.members
        )
        least = max(LEAST, self.policy.required(len(chosen)))
        if len(able) < least:
            raise PrivacyError(
                f"round {number}: {len(able)} clients can take part, and a secure sum needs "
                f"{least} here; over two, each would learn the other's change"
            )
        work = RoundWork(number, state, self.server_steps.broadcast(server, number))
        shapes = self._shapes(work)
        drawn, parameters = self._drawn(state, number), count_parameters(state)
        length = len(abstain(state)) + _length(shapes)
        length += 0 if drawn is None else len(drawn) - parameters
        total = self._sum(work, able, length)
        values, sums = split_statistics(np.asarray(total.values, dtype=np.float64), shapes)
        if drawn is not None:
            values = spread_drawn(values, drawn, parameters)
        self._check(number, values, len(total.clients))
        merged, turn = combine(state, values), None
        if self.server_steps.steps:
            turn = Turn(number, state, merged, total.clients, self.server_steps.run, sums)
            server, merged = self.server_steps.step(server, turn)
        failures = tuple(sorted((*unconfirmed, *total.failures), key=lambda gone: gone.client))
        audit = _audit(number, total, failures, (state, merged))
        self.record(replace(audit, statistics=tuple(sorted(shapes))))
        if turn is not None:
            server, merged = self._calibrate(replace(turn, merged=merged), server)
        # A sum has one number of 64 bits for each entry, and the same number from every client.
        sent = None if self.compression is None else 8 * length
        reports = tuple(ClientReport(client, sent_bytes=sent) for client in total.clients)
        return RoundResult(merged, reports, failures, server)

    def _calibrate(self, turn: Turn, server: Tensors) -> tuple[Tensors, ModelState]:
        """Return server state and model after the statistics of the merged model, if any are due.

        A server that stops before the round is committed repeats both sums: the clients' vectors
        are the same, so that nothing new is revealed.
        """
        broadcast = self.server_steps.broadcast(server, turn.round)
        work = RoundWork(turn.round, turn.merged, broadcast, measure=True)
        shapes = self._shapes(work)
        if not shapes:
            return server, turn.merged
        total = self._sum(work, list(turn.clients), _length(shapes) + 1)
        values = np.asarray(total.values, dtype=np.float64)
        _check_number(turn.round, values[-1], len(total.clients))
        self.record_measured(turn.round, total.clients, sorted(shapes))
        sums = split_measured_statistics(values, shapes, self.samples)
        return self.server_steps.calibrate(server, replace(turn, clients=total.clients, sums=sums))

    def _drawn(self, state: ModelState, number: int) -> IntArray | None:
        """Return the places of the parameters that enter the sum of a round; None for all."""
        if self.compression is None:
            return None
        return self.compression.drawn(state, self.seed, number)

    def _shapes(self, work: RoundWork) -> Tensors:
        """Return the shapes of the statistics that are due."""
        wanted = due(self.statistics, work.round, *moments_of(measure=work.measure))
        return statistic_shapes(wanted, work.state, self.server_steps.run) if wanted else {}

    def _sum(self, work: RoundWork, clients: list[int], length: int) -> SumResult:
        request = SumRequest(self.run, work.sum_number, length, view=self.view(work))
        transport = self.open_transport(work)
        return repeat_until_quorum(
            lambda _: self.aggregation(request, clients, transport),
            self.policy.attempts,
            f"statistics of round {work.round}" if work.measure else f"round {work.round}",
            shortage=TooFewError,
        )

    def _check(self, number: int, values: FloatArray, clients: int) -> None:
        """Refuse a sum that honest clients cannot have made; the faulty client is unknown."""
        mass, weight, counted = values[-SCALARS:].tolist()
        _check_number(number, counted, clients)
        if not (0 <= weight <= 1 + _ROUNDING and mass >= 0):
            raise PrivacyError(
                f"round {number}: the clients claim a weight of {weight:g} together, where all "
                "clients have 1: some client violates the agreement"
            )


def sum_site_scores(
    aggregation: SecureAggregation,
    request: SumRequest,
    members: Sequence[int],
    transport: Transport,
    attempts: int,
) -> SumResult | None:
    """Return the sum of the sites' scores; None if too few take part, which ends no run."""
    try:
        return repeat_until_quorum(
            lambda _: aggregation(request, members, transport),
            attempts,
            "scores of sites",
            shortage=TooFewError,
        )
    except QuorumError as error:
        log.warning("%s; the run has no scores of sites", error)
        return None


def read_site_scores(
    total: SumResult | None, audit: AuditFile, number: int, tested_on: str = OWN_TEST
) -> tuple[SiteSpread, ...]:
    """Return what follows from the sum of the sites' scores, and note who was summed."""
    if total is None:
        return ()
    totals = np.asarray(total.values, np.int64)
    try:
        spreads = spreads_from_sums(totals)
    except ValueError as error:
        raise PrivacyError(f"{error}: some client violates the agreement") from error
    audit.add_scores(number, total.clients, {tested_on: int(totals[1])})
    return spreads


def site_scores_request(run: str, number: int, view: str) -> SumRequest:
    """Return the request for the sum of the sites' scores of a round's model."""
    return SumRequest(run, SITE_SCORING + number, SUMMED_LENGTH, whole=True, view=view)


def _check_number(number: int, counted: float, clients: int) -> None:
    """Refuse a sum in which other clients count than took part."""
    if counted != clients:
        raise PrivacyError(
            f"round {number}: the sum counts {counted:g} clients where {clients} took part; "
            "clients that received different models, recipes or sums add up to noise"
        )


def _length(shapes: Tensors) -> int:
    return sum(shape.numel() for shape in shapes.values())


def _audit(
    number: int,
    total: SumResult,
    failures: tuple[ClientFailure, ...],
    states: tuple[ModelState, ModelState],
) -> RoundAudit:
    before, after = states
    mass, weight, _ = total.values[-SCALARS:].tolist()
    return RoundAudit(
        number,
        total.clients,
        failures,
        total.attempts,
        weight,
        mass / weight if weight > 0 else 0.0,
        update_norm(before, after),
        digest(after),
        total.false_shares,
    )
