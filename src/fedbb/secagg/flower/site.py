"""A site in a private run: it answers signed messages and reveals neither its data nor its model.

Run, round and stage of a message are those that the server has signed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from flwr.app import RecordDict

from fedbb.errors import DivergedError, RefusedError, RunError
from fedbb.evaluation.sites import OWN_TEST, SiteScores, site_vector
from fedbb.flower.app.serde import TrainRequest
from fedbb.flower.app.settings import SiteSettings
from fedbb.flower.app.site import Site, open_client_state, open_site, run_folder
from fedbb.recipes.check import check_recipe
from fedbb.recipes.privacy import SCORES_DIFFER, agree, may_difference
from fedbb.recipes.spec import Recipe
from fedbb.records import ClientUpdate, FloatArray, IntArray, ModelState
from fedbb.runs.federation import measure_inputs, normalize_by_sums, sums_inputs
from fedbb.secagg.cbr import Agreement, Contributor, Measured, Sums, split_measured
from fedbb.secagg.client_secrets import ClientSecrets, ClientStore, RosterKeys, read_site_keys
from fedbb.secagg.flower.serde import (
    SiteMessage,
    pack_answer,
    pack_number,
    unpack_message,
    weigh_scores,
)
from fedbb.secagg.primitives.noise import gaussian_noise
from fedbb.secagg.protocol.messages import AttemptId, verify_message
from fedbb.secagg.protocol.replay_guard import (
    KIND,
    MEASURING,
    SCORING,
    SITE_SCORING,
    FileJournal,
    RunLimit,
)
from fedbb.secagg.protocol.roster import AGGREGATOR
from fedbb.secagg.protocol.secure_aggregation import Values
from fedbb.secagg.round import (
    COMMIT,
    CONFIRM,
    MASKED,
    STATISTICS_ROUND,
    StatisticsClient,
    sum_client,
)
from fedbb.secagg.view import model_digest, view_digest
from fedbb.statistics import due
from fedbb.training.config import TrainJob
from fedbb.training.local import ClientDataset

log = logging.getLogger("fedbb")

RUNS = ".private-runs"
"""The journal of the private runs that a site took part in, in its state folder."""


@dataclass(frozen=True, eq=False)
class SecureSite:
    """A site that can take part: it has keys and a state folder, and accepts the roster's terms."""

    recipe: Recipe
    settings: SiteSettings
    keys: RosterKeys
    agreement: Agreement

    def answer(self, message: SiteMessage) -> bytes:
        """Return the answer to a message, or refuse it; data is loaded only if it is needed."""
        roster, client = self.keys.roster, self.settings.client
        signed = verify_message(message.data, roster, message.stage, AGGREGATOR)
        attempt_id, run = signed.attempt_id, signed.attempt_id.run
        store = self._open_store(run)
        limit = self._run_limit()
        if message.stage == COMMIT:
            limit.check(run)
            secrets = store.commit(self._declare(run))
            statistics = StatisticsClient(run, client, roster, secrets, store.journal)
            return statistics.commit_statistics(message.data)
        if message.stage == CONFIRM:
            statistics = StatisticsClient(run, client, roster, store.load(), store.journal)
            sums, answer = statistics.confirm(message.data, self.agreement.terms)
            store.confirm(sums)
            return answer
        scheme = self.recipe.privacy if attempt_id.round == STATISTICS_ROUND else MASKED
        summing = sum_client(
            scheme,
            client,
            self.keys.identity,
            roster,
            store.journal,
            run=run,
            rounds=self.agreement.rounds,
            runs=limit,
        )
        with store.stage_of(summing, f"{scheme}.json"):
            secrets = store.load()
            values: Values = partial(self._vector, secrets, attempt_id, message)
            view = self._view(secrets, attempt_id, message)
            return summing.answer(message.stage, message.data, values, view)

    def _view(self, secrets: ClientSecrets, attempt_id: AttemptId, message: SiteMessage) -> str:
        """Return the digest of what this site itself received, see `fedbb.secagg.view`."""
        if attempt_id.round == STATISTICS_ROUND:
            return view_digest(self.agreement)
        model = None if message.state is None else model_digest(message.state)
        return view_digest(
            self.agreement, secrets.sums, model, message.state_rounds, message.broadcast
        )

    def _vector(
        self, secrets: ClientSecrets, attempt_id: AttemptId, message: SiteMessage
    ) -> FloatArray | IntArray:
        """Return what this site adds to a sum: its statistics, its weighted change, or scores."""
        if attempt_id.round == STATISTICS_ROUND:
            return secrets.declared
        if secrets.sums is None:
            raise RefusedError("this site has confirmed no sums, and cannot weigh itself")
        if message.state is None:
            raise RefusedError("the message of a round has no model to start from")
        site = open_site(self.recipe, self.settings, attempt_id.run)
        contributor = self._contributor(site)
        if sums_inputs(self.recipe):
            site = _normalized(site, contributor.measured, secrets.sums)
        if attempt_id.round > SITE_SCORING:
            return site_vector(self._site_scores(site, attempt_id.run, message))
        if SCORING < attempt_id.round < MEASURING:
            self._check_group()
            scores = site.score(self._model(site, attempt_id.run, message))
            return weigh_scores(scores, len(site.dataset.classes))
        if not np.array_equal(contributor.statistics(), secrets.declared):
            raise RunError("this site has other data than when the run began")
        measure = attempt_id.round > MEASURING
        shapes = site.statistic_shapes(message.state, attempt_id.round % KIND, measure=measure)
        if measure and not shapes:
            raise RefusedError("the recipe has no statistics of the merged model in this round")
        update = None
        if contributor.info.samples > 0:
            update = self._train(site, attempt_id, message.state, message)
        if measure:
            statistics = due(site.method.statistics, attempt_id.round % KIND, "merged")
            found = None if update is None else update.statistics
            return contributor.measured_vector(statistics, found, shapes, secrets.sums)
        draw_noise = partial(gaussian_noise, secrets.noise, attempt_id.round)
        compression, drawn = site.method.compression, None
        if compression is not None:
            drawn = compression.drawn(message.state, self.recipe.seed, attempt_id.round)
        return contributor.vector(message.state, update, secrets.sums, shapes, draw_noise, drawn)

    def _check_group(self) -> None:
        """Refuse scores in sums of every round over changing groups."""
        if may_difference(self.recipe, len(self.keys.roster.members)):
            raise RefusedError(f"pooled scores of sites: {SCORES_DIFFER}")

    def _model(self, site: Site, run: str, message: SiteMessage) -> ModelState:
        """Return the model to score: as it came, or with what this site's client keeps of it."""
        assert message.state is not None
        if site.method.shares_model:
            return message.state
        store = open_client_state(self.settings.state, run, RecordDict())
        return site.own_model(message.state, message.state_rounds.get(site.client), store)

    def _site_scores(self, site: Site, run: str, message: SiteMessage) -> SiteScores | None:
        """Return the scores on the site's own test data, or those of its own model in a round."""
        assert message.state is not None
        if site.method.shares_model:
            return _own_scores(site, message.state)
        self._check_group()
        found = site.score(self._model(site, run, message)).get("test")
        return None if found is None else SiteScores.of(site.client, found)

    def _train(
        self, site: Site, attempt_id: AttemptId, state: ModelState, message: SiteMessage
    ) -> ClientUpdate:
        state_round = message.state_rounds.get(site.client)
        number, measure = attempt_id.round % KIND, attempt_id.round > MEASURING
        job = TrainJob(site.client, number, self.recipe.seed, state, message.broadcast, measure)
        client_state = open_client_state(self.settings.state, attempt_id.run, RecordDict())
        request = TrainRequest(job, attempt_id.attempt, attempt_id.run, state_round)
        done = site.train(request, client_state)
        if done.lost:
            log.warning("the client state of round %s is lost; trained without it", state_round)
        return done.update

    def _declare(self, run: str) -> IntArray:
        return self._contributor(open_site(self.recipe, self.settings, run)).statistics()

    def _contributor(self, site: Site) -> Contributor:
        """Return the site's side of the sums, with what it measures before round 1."""
        measured = site.measured()
        if sums_inputs(self.recipe):
            measured |= measure_inputs(site.dataset, site.train_data.indices)
        return Contributor(site.info(), self.agreement, measured)

    def _run_limit(self) -> RunLimit:
        """Return how many runs this site takes part in, as its own settings say."""
        assert self.settings.state is not None
        journal = FileJournal(self.settings.state / RUNS)
        return RunLimit(journal, self.keys.roster.digest, self.settings.private_runs)

    def _open_store(self, run: str) -> ClientStore:
        assert self.settings.state is not None
        folder = run_folder(self.settings.state, run) / "secure"
        return ClientStore.open(folder, self.keys.identity)


def _normalized(site: Site, like: Measured, sums: Sums) -> Site:
    """Return the site with its inputs normalized by the sums that it confirmed."""
    measured = split_measured(sums.measured, like)
    dataset = normalize_by_sums(site.dataset, measured, len(sums.clients))
    train = ClientDataset(dataset, site.train_data.indices)
    return replace(site, data=replace(site.data, train=train))


def _own_scores(site: Site, state: ModelState) -> SiteScores | None:
    """Return the scores of a model on the site's own test data, None if it keeps none."""
    if not len(site.data.scored.get(OWN_TEST, ())):
        return None
    return SiteScores.of(site.client, site.score_own(state)[OWN_TEST])


def open_secure_site(recipe: Recipe, settings: SiteSettings) -> SecureSite:
    """Return a site that can take part in a private run, or report what it lacks."""
    method = check_recipe(recipe)
    if recipe.privacy == "none":
        raise RunError(
            'the recipe has privacy = "none", and the server sends messages of a private run'
        )
    if settings.state is None:
        raise RunError(
            f'node config: state is missing; privacy = "{recipe.privacy}" needs a folder of the '
            "site's own for decisions that must survive a restart"
        )
    keys = read_site_keys(settings.keys, settings.client)
    return SecureSite(recipe, settings, keys, agree(keys.roster, recipe, method))


def report_number(recipe: Recipe, settings: SiteSettings) -> RecordDict:
    """Return this site's number, after checking that it can take part."""
    open_secure_site(recipe, settings)
    outline = open_site(recipe, settings).outline()
    if settings.whole or sums_inputs(recipe):  # statistics of this site's data alone, or not yet
        outline = replace(outline, mean=None, std=None)
    return pack_number(settings.client, outline)


def answer_message(recipe: Recipe, settings: SiteSettings, content: RecordDict) -> RecordDict:
    """Return the answer to a signed message; errors reveal nothing that was computed here."""
    try:
        return pack_answer(open_secure_site(recipe, settings).answer(unpack_message(content)))
    except DivergedError as error:
        raise DivergedError("its training produced a number that is not finite") from error
