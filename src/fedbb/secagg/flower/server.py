"""The server of a private run on Flower: sites train and score, and the server sees sums."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from flwr.app import RecordDict

from fedbb._util.files import replacing
from fedbb.errors import ReplyError, RunError, TooFewError
from fedbb.evaluation.metrics import Scores
from fedbb.evaluation.own_models import ClientsScores
from fedbb.evaluation.sites import OWN_TEST, SiteScores, SiteSpread
from fedbb.flower.app.node_registry import NodeRegistry
from fedbb.flower.app.run_metadata import (
    RunMetadata,
    describe,
    load_run_metadata,
    save_run_metadata,
)
from fedbb.flower.app.serde import Outline, pack_state, pack_tensors
from fedbb.flower.app.settings import RunSettings
from fedbb.flower.app.site import dataset_of
from fedbb.flower.app.transport import Failure, GridTransport
from fedbb.methods import Method
from fedbb.recipes.privacy import agree
from fedbb.recipes.spec import Recipe
from fedbb.records import IntArray, LabelCounts, ModelState, Tensors
from fedbb.rounds.round import NO_SERVER_STATE, repeat_until_quorum
from fedbb.rounds.server_steps import NO_SERVER_STEPS, ServerSteps
from fedbb.runs.federation import CHANNEL_SUMS, normalize_by_sums, sums_inputs
from fedbb.runs.folder import CLIENTS_FILE, RunFolder
from fedbb.runs.metadata import ClientRecord, FederationRecord, set_up_folder
from fedbb.runs.model_info import ModelInfo
from fedbb.secagg.audit import AuditFile, RoundAudit, begin_audit
from fedbb.secagg.cbr import Agreement
from fedbb.secagg.client_secrets import ROSTER, RosterKeys, read_server_keys
from fedbb.secagg.flower.serde import (
    Attachment,
    pack_message,
    read_message,
    read_scores,
    scores_length,
)
from fedbb.secagg.protocol.replay_guard import SCORING
from fedbb.secagg.protocol.secure_aggregation import SumRequest
from fedbb.secagg.round import (
    COMMIT,
    MASKED,
    RoundWork,
    SecureRound,
    StatisticsResult,
    StatisticsRound,
    read_site_scores,
    site_scores_request,
    sum_server,
    sum_site_scores,
)
from fedbb.secagg.view import model_digest, view_digest

log = logging.getLogger("fedbb")

FIRST_STAGES = (COMMIT, "keys", "context")
"""Stages that begin an attempt: when one is repeated, the server waits for missing clients."""

WORK = "masked"
"""The stage in which sites train, so that its messages carry the model."""


@dataclass(eq=False)
class SiteTransport:
    """Carries the messages of one sum to Flower sites.

    Args:
        registry: finds the nodes of clients.
        grid: sends Flower messages.
        what: what is summed, for logs.
        deadline: seconds that a stage waits for answers.
        wait: seconds that a repeated attempt waits for missing clients.
        attachment: goes with the messages that ask for work.
    """

    registry: NodeRegistry
    grid: GridTransport
    what: str
    deadline: float
    wait: float
    attachment: Attachment | None = None
    _sent: set[str] = field(default_factory=set)

    def exchange(self, stage: str, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield the sites' answers as they arrive; the log says why a site gave none."""
        attachment = self.attachment if stage == WORK else None
        nodes = self._find(stage, sorted(messages))
        contents = {
            node: pack_message(stage, messages[client], attachment)
            for client, node in nodes.items()
        }
        clients = {node: client for client, node in nodes.items()}
        kind = "query.secure" if attachment is None else "train.secure"
        about = f"{self.what}, stage {stage}"
        for node, outcome in self.grid.send_and_receive(kind, contents, self.deadline, about):
            try:
                answer = _read(outcome)
            except ReplyError as error:
                log.warning("%s: no answer from client %d: %s", about, clients[node], error)
            else:
                yield clients[node], answer

    def _find(self, stage: str, clients: list[int]) -> dict[int, int]:
        again = stage in FIRST_STAGES and stage in self._sent
        self._sent.add(stage)
        nodes = self.registry.find(clients, self.wait if again else 0.0)
        for client in clients:
            if client not in nodes:
                log.warning("%s, stage %s: client %d is not connected", self.what, stage, client)
        return nodes


def _read(outcome: RecordDict | Failure) -> bytes:
    if isinstance(outcome, Failure):
        raise ReplyError(outcome.reason)
    return read_message(outcome)


@dataclass(frozen=True, eq=False)
class SecureServer:
    """The server's side of a private run, before and during its rounds.

    Args:
        recipe: the recipe of the run.
        method: its method.
        registry: the sites.
        keys: the server's keys.
        agreement: what server and sites agree on.
        wait: seconds that a repeated sum waits for missing clients.
    """

    recipe: Recipe
    method: Method
    registry: NodeRegistry
    keys: RosterKeys
    agreement: Agreement
    wait: float

    @property
    def clients(self) -> int:
        """How many clients the roster names."""
        return len(self.keys.roster.members)

    def run_name(self, folder: RunFolder, name: str) -> str:
        """Return the name of the run; an interrupted set-up keeps its name.

        Sites sum statistics once under a name. Under a new name, and over other sites, the
        difference of the sums would reveal a site's numbers.
        """
        return load_run_metadata(folder).run if folder.file(CLIENTS_FILE).exists() else name

    def set_up(
        self,
        folder: RunFolder,
        metadata: RunMetadata,
        scored: Mapping[str, LabelCounts],
        describe_model: Callable[[Outline], ModelInfo | None],
    ) -> None:
        """Sum the sites' statistics and write the run folder."""

        def begin() -> FederationRecord:
            save_run_metadata(folder, metadata)
            statistics = self._sum_statistics(metadata.run)
            with replacing(folder.file(ROSTER)) as file:
                file.write(self.keys.signed)
            agreed = (self.agreement, statistics)
            begin_audit(folder.path, metadata.run, self.recipe.privacy, self.keys, agreed)
            log.info("%d sites confirmed the sums", len(statistics.confirmations))
            return describe_private(metadata, statistics.sums.samples, scored)

        def model() -> ModelInfo | None:
            return describe_model(self.normalized(metadata.outline, folder))

        set_up_folder(folder, self.recipe, begin, model)

    def normalized(self, outline: Outline, folder: RunFolder) -> Outline:
        """Return the outline with mean and deviation from the sum over all sites, if there is one.

        The sum is that in the audit of the run.
        """
        if not sums_inputs(self.recipe):
            return outline
        audit = AuditFile.read(folder.path)
        dataset = normalize_by_sums(dataset_of(outline), audit.measured, len(audit.sums.clients))
        return replace(outline, mean=dataset.mean, std=dataset.std)

    def transport(self, what: str, attachment: Attachment | None = None) -> SiteTransport:
        """Return the transport to the sites for one sum."""
        deadline = self.recipe.defense.deadline
        return SiteTransport(
            self.registry, self.registry.transport, what, deadline, self.wait, attachment
        )

    def _sum_statistics(self, run: str) -> StatisticsResult:
        outline = self.registry.outline
        assert outline is not None
        statistics = StatisticsRound(
            run,
            self.keys.roster,
            self.keys.identity,
            self.agreement,
            like=self.registry.measured_like(len(outline.classes)) | self._inputs_like(outline),
        )
        aggregation = sum_server(self.recipe.privacy, self.keys)
        transport = self.transport("statistics")
        return repeat_until_quorum(
            lambda _: statistics(aggregation, range(self.clients), transport),
            self.recipe.defense.attempts,
            "statistics",
            shortage=TooFewError,
        )

    def _inputs_like(self, outline: Outline) -> dict[str, IntArray]:
        zeros = np.zeros((2 * outline.channels + 1, 4), dtype=np.int64)
        return {CHANNEL_SUMS: zeros} if sums_inputs(self.recipe) else {}


def open_secure_server(
    settings: RunSettings, method: Method, registry: NodeRegistry
) -> SecureServer:
    """Return the server's side of a private run; report missing keys or other terms."""
    keys = read_server_keys(settings.keys)
    agreement = agree(keys.roster, settings.recipe, method)
    return SecureServer(settings.recipe, method, registry, keys, agreement, settings.wait)


@dataclass(eq=False)
class SecureRounds:
    """The rounds of a private run on Flower.

    Args:
        server: the server's side.
        run: the name of the run.
        audit: what the server saw so far.
        state_rounds: the round of each site's state.
        server_steps: the method's server steps in this run.
        last: the last round that the sites trained.
    """

    server: SecureServer
    run: str
    audit: AuditFile
    state_rounds: dict[int, int]
    server_steps: ServerSteps = NO_SERVER_STEPS
    last: int = 0

    @property
    def round(self) -> SecureRound:
        """What computes one round after the other."""
        return SecureRound(
            sum_server(MASKED, self.server.keys),
            self._open_transport,
            self.run,
            self.server.clients,
            self.audit.confirmed,
            self.server.recipe.defense,
            self._record,
            self.audit.add_measured,
            lambda work: self._view(work.state, self._state_rounds(work), work.broadcast),
            self.audit.sums.samples,
            self.server_steps,
            self.server.method.statistics,
            self.server.method.compression,
            self.server.recipe.seed,
        )

    def score(self, state: ModelState, *, own: bool = False) -> dict[str, Scores]:
        """Return the pooled scores of the last round's state; no site reveals its own.

        Args:
            state: The model.
            own: Whether each site scores its own model, of which `state` is the shared part.
        """
        outline = self.server.registry.outline
        assert outline is not None
        classes, members = len(outline.classes), sorted(self.audit.confirmed)
        since = dict(self.state_rounds) if own else {}
        request = SumRequest(
            self.run, SCORING + self.last, scores_length(classes), True, self._view(state, since)
        )
        what = f"scoring of round {self.last}"
        transport = self.server.transport(what, Attachment(pack_state(state), since))
        aggregation = sum_server(MASKED, self.server.keys)
        attempts = self.server.recipe.defense.attempts
        total = repeat_until_quorum(
            lambda _: aggregation(request, members, transport),
            attempts,
            what,
            shortage=TooFewError,
        )
        scores = read_scores(np.asarray(total.values, np.int64), classes, outline.task)
        samples = {name: found.samples for name, found in scores.items()}
        self.audit.add_scores(self.last, total.clients, samples)
        return scores

    def score_sites(
        self, number: int, state: ModelState, *, own: bool = False
    ) -> tuple[SiteSpread, ...]:
        """Return what a sum reveals of the scores of a model on the sites' own test data.

        With `own` they are those of each site's own model on its test data for all.
        """
        since = dict(self.state_rounds) if own else {}
        total = sum_site_scores(
            sum_server(MASKED, self.server.keys),
            site_scores_request(self.run, number, self._view(state, since)),
            sorted(self.audit.confirmed),
            self.server.transport("scores of sites", Attachment(pack_state(state), since)),
            self.server.recipe.defense.attempts,
        )
        return read_site_scores(total, self.audit, number, "test" if own else OWN_TEST)

    def _open_transport(self, work: RoundWork) -> SiteTransport:
        beside = pack_tensors(work.broadcast) if work.broadcast else None
        attachment = Attachment(pack_state(work.state), self._state_rounds(work), beside)
        what = f"statistics of round {work.round}" if work.measure else f"round {work.round}"
        return self.server.transport(what, attachment)

    def _state_rounds(self, work: RoundWork) -> dict[int, int]:
        """Return the round of each site's state, on which statistics do not depend."""
        return {} if work.measure else dict(self.state_rounds)

    def _view(
        self,
        state: ModelState,
        state_rounds: Mapping[int, int],
        broadcast: Tensors = NO_SERVER_STATE,
    ) -> str:
        """Return the view of a sum over sites that received this."""
        sums = self.audit.sums
        return view_digest(
            self.server.agreement, sums, model_digest(state), state_rounds, broadcast
        )

    def _record(self, seen: RoundAudit) -> None:
        self.audit.add_round(seen)
        self.last = seen.round
        needs = self.server.method.needs
        if needs.client_state or needs.keeps:
            # A client that is not in the sum continues from its earlier state.
            self.state_rounds.update(dict.fromkeys(seen.clients, seen.round))


@dataclass(frozen=True, eq=False)
class OwnModelSums:
    """Scores of the sites' own models, of which the server learns sums over sites."""

    rounds: SecureRounds

    def __call__(self, shared: ModelState, server: Tensors) -> ClientsScores:
        """Return mean and standard deviation over the sites; classes are pooled by samples."""
        rounds = self.rounds
        pooled = rounds.score(shared, own=True)
        found = rounds.score_sites(rounds.last, shared, own=True)
        spreads = {spread.metric: spread for spread in found}
        test = pooled["test"]
        macro = {
            metric: spreads[metric].mean if metric in spreads else value
            for metric, value in test.macro.items()
        }
        std = {m: spreads[m].std if m in spreads else math.nan for m in test.macro}
        members = rounds.audit.confirmed
        trained = sum(client in rounds.state_rounds for client in members)
        mean = {**pooled, "test": replace(test, macro=macro)}
        return ClientsScores(mean, {"test": std}, {}, len(members), trained, hidden=True)

    def sites(self, shared: ModelState, server: Tensors) -> tuple[SiteScores, ...]:
        """Return nothing: no site's own scores leave it."""
        return ()


def open_rounds(
    folder: RunFolder,
    server: SecureServer,
    run: str,
    state_rounds: dict[int, int],
    server_steps: ServerSteps,
) -> SecureRounds:
    """Return the rounds of the run in this folder, new or resumed."""
    audit = AuditFile.read(folder.path)
    if audit.content["roster"] != server.keys.roster.digest:
        raise RunError(f"{folder.path} was begun under another roster than the one here now")
    return SecureRounds(server, run, audit, state_rounds, server_steps)


def describe_private(
    metadata: RunMetadata, samples: int, scored: Mapping[str, LabelCounts]
) -> FederationRecord:
    """Return what the server of a private run knows of its sites: their number and all samples."""
    clients = [ClientRecord(info.client) for info in metadata.infos]
    return describe(metadata, scored, clients, samples)
