"""A site in a private run: it answers letters, and shows nobody its numbers or its model.

Whatever comes is taken for what the server's signature says it is: which run, round and stage.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from flwr.app import RecordDict

from fedbb.errors import DivergedError, RefusedError, RunError
from fedbb.flower.app.client_state import open_store, run_folder
from fedbb.flower.app.serde import Order
from fedbb.flower.app.settings import SiteSettings
from fedbb.flower.app.site import Site, open_site
from fedbb.methods import Method
from fedbb.recipes.check import check_recipe
from fedbb.recipes.spec import Recipe
from fedbb.records import ClientUpdate, FloatArray, IntArray, ModelState
from fedbb.secagg.flower.keys import Pinned, agree, read_site_keys
from fedbb.secagg.flower.packing import Delivery, pack_answer, pack_number, unpack_letter
from fedbb.secagg.flower.scoring import FIRST, weigh_scores
from fedbb.secagg.flower.state import Pledged, SecureState, open_state
from fedbb.secagg.masked.client import MaskedParty
from fedbb.secagg.member import Agreement, Member
from fedbb.secagg.protocol.messages import Occasion, unseal
from fedbb.secagg.protocol.roster import AGGREGATOR
from fedbb.secagg.secure_aggregation import Party, Values
from fedbb.secagg.statistics_round import COMMIT, ROUND, TOLD, Pledge
from fedbb.training.config import TrainJob

log = logging.getLogger("fedbb")


@dataclass(frozen=True, eq=False)
class SecureSite:
    """A site that can take part: its keys and its folder are there, and the roster's terms hold."""

    recipe: Recipe
    settings: SiteSettings
    pinned: Pinned
    agreement: Agreement

    def answer(self, delivery: Delivery) -> bytes:
        """Return the answer to a letter, or refuse it; data is loaded only where it is needed."""
        letter = unseal(delivery.letter, self.pinned.roster, delivery.stage, AGGREGATOR)
        occasion = letter.occasion
        state = open_state(self._folder(occasion.run) / "secure")
        if delivery.stage == COMMIT:
            return self._pledge(state, occasion.run, self._declare()).commit(delivery.letter)
        if delivery.stage == TOLD:
            pledge = self._pledge(state, occasion.run, state.pledged().declared)
            sums, answer = pledge.confirm(delivery.letter, self.agreement.terms)
            state.confirm(sums)
            return answer
        kind = self.recipe.privacy if occasion.round == ROUND else "masked"
        party = self._party(kind, state, occasion.run)
        with state.taking_part(party, f"{kind}.json"):
            values: Values = partial(self._part, state.pledged(), occasion, delivery)
            return party.answer(delivery.stage, delivery.letter, values)

    def _part(
        self, pledged: Pledged, occasion: Occasion, delivery: Delivery
    ) -> FloatArray | IntArray:
        """Return what this site adds to a sum: its statistics, what it has trained, or scores."""
        if occasion.round == ROUND:
            return pledged.declared
        if pledged.sums is None:
            raise RefusedError("this site was told no sums to weigh itself by")
        if delivery.state is None:
            raise RefusedError("a round's letter comes without a model to start from")
        site = open_site(self.recipe, self.settings)
        if occasion.round > FIRST:
            return weigh_scores(site.score(delivery.state), len(site.dataset.classes))
        member = Member(site.info(), self.agreement)
        if not np.array_equal(member.statistics(), pledged.declared):
            raise RunError("this site has other data than when the run began")
        update = None
        if member.info.samples > 0:
            update = self._train(site, occasion, delivery.state, delivery.since)
        return member.part(delivery.state, update, pledged.sums)

    def _train(
        self, site: Site, occasion: Occasion, state: ModelState, since: int | None
    ) -> ClientUpdate:
        job = TrainJob(site.client, occasion.round, self.recipe.seed, state)
        memory = open_store(self.settings.state, occasion.run, RecordDict())
        done = site.train(Order(job, occasion.attempt, occasion.run, since), memory)
        if done.forgot:
            log.warning("the memory of round %s is lost; trained without", since)
        return done.update

    def _declare(self) -> IntArray:
        info = open_site(self.recipe, self.settings).info()
        return Member(info, self.agreement).statistics()

    def _pledge(self, state: SecureState, run: str, declared: IntArray) -> Pledge:
        pledged, pinned = state.pledge(declared), self.pinned
        client = self.settings.client
        return Pledge(run, client, pinned.roster, pinned.identity, pledged.nonce, pledged.declared)

    def _party(self, kind: str, state: SecureState, run: str) -> Party:
        pinned, client = self.pinned, self.settings.client
        if kind == "masked":
            return MaskedParty(client, pinned.identity, pinned.roster, state.journal, run)
        # Encryption comes with an extra of its own.
        from fedbb.secagg.bfv.client import EncryptedParty

        return EncryptedParty(client, pinned.identity, pinned.roster, state.journal, run)

    def _folder(self, run: str) -> Path:
        assert self.settings.state is not None
        return run_folder(self.settings.state, run)


def open_secure_site(recipe: Recipe, settings: SiteSettings) -> SecureSite:
    """Return a site that can take part in a private run, or say what it lacks."""
    method: Method = check_recipe(recipe)
    if recipe.privacy == "none":
        raise RunError('the recipe says privacy = "none", and its run sends letters all the same')
    if settings.state is None:
        raise RunError(
            f'node config: state is missing; privacy = "{recipe.privacy}" needs a folder of the '
            "site's own, in which it keeps what it has once decided, whatever restarts"
        )
    pinned = read_site_keys(settings.keys, settings.client)
    return SecureSite(recipe, settings, pinned, agree(pinned.roster, recipe, method))


def client_infos(recipe: Recipe, settings: SiteSettings) -> RecordDict:
    """Return this site's number, once it is sure that it can take part."""
    open_secure_site(recipe, settings)
    return pack_number(settings.client, open_site(recipe, settings).outline())


def answer_letter(recipe: Recipe, settings: SiteSettings, content: RecordDict) -> RecordDict:
    """Return the answer to a letter; an error's words tell nothing of what was computed here."""
    try:
        return pack_answer(open_secure_site(recipe, settings).answer(unpack_letter(content)))
    except DivergedError as error:
        raise DivergedError("its training met a number that is not finite") from error
