"""Private runs of simulated clients: enrolment, the sums before round 1, and the secure rounds.

The run folder separates two sides: `parties/` belongs to the clients, the rest to the server.
"""

from __future__ import annotations

import hashlib
import logging
import secrets as random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

from fedbb.errors import DivergedError, PrivacyError
from fedbb.evaluation.sites import SiteScores, SiteSpread, site_vector
from fedbb.records import ClientInfo, ClientUpdate, FloatArray, IntArray, ModelState, Tensors
from fedbb.rounds.round import RoundPolicy
from fedbb.rounds.server_steps import ServerSteps, open_server_steps
from fedbb.secagg.audit import AuditFile, begin_audit
from fedbb.secagg.cbr import Agreement, Contributor, Measured
from fedbb.secagg.client_secrets import (
    ROSTER,
    SERVER_KEY,
    ClientSecrets,
    RosterKeys,
    load_secrets,
    read_run_keys,
    save_secrets,
    secrets_path,
    write_secret,
)
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.primitives.noise import gaussian_noise
from fedbb.secagg.protocol.replay_guard import FileJournal
from fedbb.secagg.protocol.roster import Roster, sign_roster
from fedbb.secagg.protocol.secure_aggregation import (
    Recorder,
    RecordingTransport,
    SecureAggregationClient,
    Transport,
    Values,
)
from fedbb.secagg.round import (
    COMMIT,
    CONFIRM,
    MASKED,
    RoundWork,
    SecureRound,
    StatisticsClient,
    StatisticsRound,
    read_site_scores,
    site_scores_request,
    sum_client,
    sum_server,
    sum_site_scores,
)
from fedbb.secagg.view import model_digest, view_digest
from fedbb.simulation.inline import SimulationEngine
from fedbb.statistics import due, moments_of, statistic_shapes
from fedbb.training.config import TrainJob

log = logging.getLogger("fedbb.parties")

CLIENTS = "parties"
"""The folder of the clients' files in a run folder."""


class StatefulEngine(SimulationEngine, Protocol):
    """An engine that knows the round of each client's state."""

    @property
    def state_rounds(self) -> dict[int, int]:
        """The round of each client's state."""
        ...


@dataclass(eq=False)
class SimulatedClient:
    """A simulated client: what it contributes, its side of sums, and its secrets."""

    contributor: Contributor
    sums: SecureAggregationClient
    statistics: StatisticsClient

    @property
    def secrets(self) -> ClientSecrets:
        """Its secrets, with the sums that it confirmed."""
        return self.statistics.secrets

    def answer(self, stage: str, data: bytes, values: Values, view: str) -> bytes:
        """Return the answer to a message, or refuse it with a `PrivacyError`."""
        if stage == COMMIT:
            return self.statistics.commit_statistics(data)
        if stage == CONFIRM:
            sums, answer = self.statistics.confirm(data, self.contributor.agreement.terms)
            self.statistics = replace(self.statistics, secrets=replace(self.secrets, sums=sums))
            return answer
        return self.sums.answer(stage, data, values, view)


@dataclass(eq=False)
class RoundTraining:
    """The training of a round, in which every attempt starts from the same client states.

    `shapes` are those of the statistics that are due in the round. With `measure` clients compute
    statistics of the model and do not train.
    """

    engine: StatefulEngine
    state: ModelState
    number: int
    seed: int
    broadcast: Tensors = field(default_factory=dict)
    shapes: Tensors = field(default_factory=dict)
    measure: bool = False

    def __post_init__(self) -> None:
        self.first_state_rounds = dict(self.engine.state_rounds)

    @cached_property
    def model_digest(self) -> str:
        """The digest of the model that the clients receive."""
        return model_digest(self.state)

    @cached_property
    def drawn(self) -> IntArray | None:
        """The places of the parameters that enter the sum; None for all."""
        compression = self.engine.method.compression
        if compression is None:
            return None
        return compression.drawn(self.state, self.seed, self.number)

    def train(self, clients: Sequence[int]) -> Iterator[ClientUpdate]:
        """Yield the updates of these clients."""
        # A repeated attempt must not start from the client states that the first one left.
        self.engine.state_rounds.clear()
        self.engine.state_rounds.update(self.first_state_rounds)
        jobs = [
            TrainJob(client, self.number, self.seed, self.state, self.broadcast, self.measure)
            for client in clients
        ]
        try:
            yield from self.engine.train(jobs) if jobs else ()
        except DivergedError as error:
            # Its message contains a client's figures.
            raise DivergedError(
                f"round {self.number}: a client's training produced a number that is not finite; "
                "a lower local.lr or method mu may help"
            ) from error


def round_training(
    engine: StatefulEngine, work: RoundWork, seed: int, steps: ServerSteps
) -> RoundTraining:
    """Return what simulated clients do in a sum."""
    wanted = due(engine.method.statistics, work.round, *moments_of(measure=work.measure))
    shapes = statistic_shapes(wanted, work.state, steps.run) if wanted else {}
    return RoundTraining(engine, work.state, work.round, seed, work.broadcast, shapes, work.measure)


@dataclass(frozen=True, eq=False)
class SiteVectors:
    """What simulated clients add to a sum of scores of the model with this digest."""

    model: str
    vectors: Mapping[int, IntArray]


@dataclass(eq=False)
class SimulatedTransport:
    """The transport to simulated clients; with `training` they train when vectors are requested.

    Each client masks its vector as soon as it has trained, so that only one model is held. The
    order is that of the client numbers, because the server does not know the clients' sizes.
    """

    clients: Mapping[int, SimulatedClient]
    training: RoundTraining | None = None
    site_scores: SiteVectors | None = None

    def exchange(self, stage: str, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield the clients' answers; a client that refuses gives none."""
        order = sorted(messages)
        updates = self._updates(order)
        for number in order:
            client = self.clients[number]
            values = partial(self._vector, client, updates)
            try:
                answer = client.answer(stage, messages[number], values, self._view(client))
            except PrivacyError as error:
                # The reason is logged at the client's side; the server does not receive it.
                log.warning("client %d refuses stage %s: %s", number, stage, error)
                continue
            yield number, answer
        updates.finish()

    def _view(self, client: SimulatedClient) -> str:
        """Return the view of a client: what it received, and nothing that others say of it."""
        agreement, training = client.contributor.agreement, self.training
        if self.site_scores is not None:
            return view_digest(agreement, client.secrets.sums, self.site_scores.model)
        if training is None:
            return view_digest(agreement)
        return view_digest(
            agreement,
            client.secrets.sums,
            training.model_digest,
            {} if training.measure else training.first_state_rounds,
            training.broadcast,
        )

    def _updates(self, clients: Sequence[int]) -> _StageUpdates:
        trained = [k for k in clients if self.clients[k].contributor.info.samples > 0]
        return _StageUpdates(self.training, trained)

    def _vector(self, client: SimulatedClient, updates: _StageUpdates) -> FloatArray | IntArray:
        """Return what a client adds to a sum: its statistics, its weighted change, or scores."""
        if self.site_scores is not None:
            return self.site_scores.vectors[client.contributor.info.client]
        if self.training is None:
            return client.secrets.declared
        sums, info = client.secrets.sums, client.contributor.info
        assert sums is not None
        update = updates.take(info.client) if info.samples > 0 else None
        training = self.training
        if training.measure:
            due_now = due(training.engine.method.statistics, training.number, "merged")
            found = None if update is None else update.statistics
            return client.contributor.measured_vector(due_now, found, training.shapes, sums)
        # A simulation protects nobody: its noise follows from the seed, so that it can be repeated.
        seeded = f"fedbb simulated noise {training.seed} {info.client}"
        secret = hashlib.sha256(seeded.encode()).digest()
        draw_noise = partial(gaussian_noise, secret, training.number)
        return client.contributor.vector(
            training.state, update, sums, training.shapes, draw_noise, training.drawn
        )


class _StageUpdates:
    """The updates of one stage, whose training begins when the first vector is requested."""

    def __init__(self, training: RoundTraining | None, clients: Sequence[int]) -> None:
        self.training, self.clients = training, clients
        self.updates: Iterator[ClientUpdate] | None = None

    def take(self, client: int) -> ClientUpdate:
        """Return the update of a client; clients are asked in their order."""
        if self.updates is None:
            assert self.training is not None
            self.updates = self.training.train(self.clients)
        return next(update for update in self.updates if update.client == client)

    def finish(self) -> None:
        """Let the engine complete the jobs of clients that refused to answer."""
        for _ in self.updates or ():
            pass


def enrol(
    folder: Path,
    privacy: str,
    agreement: Agreement,
    infos: Sequence[ClientInfo],
    least: int,
    recorder: Recorder | None = None,
    measured: Sequence[Measured] = (),
) -> None:
    """Create keys and a roster for the clients, sum their statistics, and write all files.

    A crash in here is harmless: until the folder is a run, enrolment starts again with new keys.

    Args:
        folder: the run folder.
        privacy: the scheme of the statistics, `masked` or `bfv`.
        agreement: what server and clients agree on.
        infos: the sample count and dispersion of each client.
        least: the smallest cohort of a sum.
        recorder: sees every message, for tests.
        measured: what else each client measures, such as its label counts.
    """
    place = folder / CLIENTS
    place.mkdir(exist_ok=True)
    (place / "journal").unlink(missing_ok=True)
    enrolment, run = Identity.draw(), random.token_hex(8)
    contributors = _contributors(infos, agreement, measured)
    secrets = [ClientSecrets.draw(Identity.draw(), own.statistics()) for own in contributors]
    keys = _draw_keys(enrolment, privacy, agreement, secrets, least)
    clients = _make_clients(privacy, run, keys.roster, (contributors, secrets), place)
    like = measured[0] if measured else {}
    statistics = StatisticsRound(run, keys.roster, keys.identity, agreement, like=like)(
        sum_server(privacy, keys),
        range(len(infos)),
        _recorded(SimulatedTransport(clients), recorder),
    )
    for number, client in clients.items():
        save_secrets(secrets_path(place, number), client.secrets)
    write_secret(place / "enrolment.key", enrolment.secret.hex().encode())
    write_secret(folder / SERVER_KEY, keys.identity.secret.hex().encode())
    write_secret(folder / ROSTER, keys.signed)
    begin_audit(folder, run, privacy, keys, (agreement, statistics), simulated=True)


def open_round(
    folder: Path,
    agreement: Agreement,
    policy: RoundPolicy,
    engine: StatefulEngine,
    seed: int,
    recorder: Recorder | None = None,
) -> SecureRound:
    """Return the secure rounds of the simulated run in a folder.

    Args:
        folder: the run folder, whose clients are enrolled.
        agreement: what server and clients agree on.
        policy: the quorum of a round and the number of its attempts.
        engine: trains the clients.
        seed: the seed of the run.
        recorder: sees every message, for tests.
    """
    infos, place = engine.client_infos(), folder / CLIENTS
    audit = AuditFile.read(folder)
    run, keys = str(audit.content["run"]), _load_keys(folder, audit)
    secrets = [load_secrets(secrets_path(place, number)) for number in range(len(infos))]
    # What clients measured once is in their secrets.
    contributors = _contributors(infos, agreement, ())
    clients = _make_clients(MASKED, run, keys.roster, (contributors, secrets), place)

    steps = replace(open_server_steps(engine, seed), measured=audit.measured)
    statistics = engine.method.statistics

    def open_transport(work: RoundWork) -> Transport:
        training = round_training(engine, work, seed, steps)
        return _recorded(SimulatedTransport(clients, training), recorder)

    def view(work: RoundWork) -> str:
        rounds = {} if work.measure else engine.state_rounds
        return view_digest(agreement, audit.sums, model_digest(work.state), rounds, work.broadcast)

    return SecureRound(
        sum_server(MASKED, keys),
        open_transport,
        run,
        len(infos),
        audit.confirmed,
        policy,
        audit.add_round,
        audit.add_measured,
        view,
        audit.sums.samples,
        steps,
        statistics,
        engine.method.compression,
        seed,
    )


def sum_sites(
    folder: Path,
    agreement: Agreement,
    policy: RoundPolicy,
    number: int,
    state: ModelState,
    sites: Sequence[SiteScores],
) -> tuple[SiteSpread, ...]:
    """Return what a secure sum reveals of a model's scores on the clients' own test data.

    Args:
        folder: the run folder, whose clients are enrolled.
        agreement: what server and clients agree on.
        policy: how often the sum is attempted.
        number: the round after which the model is.
        state: the model.
        sites: the scores of each client that keeps test data; only their sums are revealed.

    Returns:
        Mean and deviation over the clients; empty if too few took part.
    """
    audit, place = AuditFile.read(folder), folder / CLIENTS
    run, keys = str(audit.content["run"]), _load_keys(folder, audit)
    everyone = sorted(keys.roster.members)
    secrets = [load_secrets(secrets_path(place, client)) for client in everyone]
    contributors = _contributors([ClientInfo(k, 0) for k in everyone], agreement, ())
    clients = _make_clients(MASKED, run, keys.roster, (contributors, secrets), place)
    scores = {site.client: site for site in sites}
    vectors = {client: site_vector(scores.get(client)) for client in everyone}
    model = model_digest(state)
    total = sum_site_scores(
        sum_server(MASKED, keys),
        site_scores_request(run, number, view_digest(agreement, audit.sums, model)),
        sorted(audit.confirmed),
        SimulatedTransport(clients, site_scores=SiteVectors(model, vectors)),
        policy.attempts,
    )
    return read_site_scores(total, audit, number)


def _contributors(
    infos: Sequence[ClientInfo], agreement: Agreement, measured: Sequence[Measured]
) -> list[Contributor]:
    each = measured or [{}] * len(infos)
    return [Contributor(info, agreement, own) for info, own in zip(infos, each, strict=True)]


def _draw_keys(
    enrolment: Identity,
    privacy: str,
    agreement: Agreement,
    secrets: Sequence[ClientSecrets],
    least: int,
) -> RosterKeys:
    """Return new keys of the server with a roster that the enrolment key signs."""
    server, graph = Identity.draw(), agreement.graph
    roster = Roster(
        {client: own.identity.public for client, own in enumerate(secrets)},
        server.public,
        least=least,
        least_dispersion=agreement.terms.floor,
        max_weight=agreement.bounds.max_weight,
        privacy=privacy,
        gamma=agreement.terms.gamma,
        recipe=agreement.recipe,
        neighbours=0 if graph is None else graph.drawn,
        neighbours_needed=0 if graph is None else graph.needed,
    )
    return RosterKeys(server, roster, sign_roster(roster, enrolment), enrolment.public)


def _load_keys(folder: Path, audit: AuditFile) -> RosterKeys:
    try:
        enrolment = bytes.fromhex(audit.content["enrolment"])
    except (KeyError, TypeError, ValueError) as error:
        raise PrivacyError(f"{audit.path} has no valid enrolment key: {error}") from error
    return read_run_keys(folder, enrolment)


def _make_clients(
    scheme: str,
    run: str,
    roster: Roster,
    sides: tuple[Sequence[Contributor], Sequence[ClientSecrets]],
    place: Path,
) -> dict[int, SimulatedClient]:
    """Return every client with its side of the sums of a scheme."""
    # A simulated run protects no real data, so that decisions need not be on disk at once.
    journal = FileJournal(place / "journal", durable=False)
    return {
        number: SimulatedClient(
            contributor,
            sum_client(
                scheme,
                number,
                secrets.identity,
                roster,
                journal.of(number),
                run=run,
                rounds=contributor.agreement.rounds,
            ),
            StatisticsClient(run, number, roster, secrets, journal.of(number)),
        )
        for number, (contributor, secrets) in enumerate(zip(*sides, strict=True))
    }


def _recorded(transport: Transport, recorder: Recorder | None) -> Transport:
    return transport if recorder is None else RecordingTransport(transport, recorder)
