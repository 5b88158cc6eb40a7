"""A client's side of a masked sum: it trusts the roster and its own journal, and no server.

Two rules keep a sum from being taken apart. In one attempt a party agrees to one list of survivors,
and unmasks it once. Another attempt at the same round of the same run it helps to unmask only over
the same survivors, all of whom sign that their vectors are the same: that sum is known already, and
without it a run whose server crashed between unmasking and saving could never go on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedbb.errors import RefusedError
from fedbb.secagg.masked.attempt import STAGES, Attempt, Pair, load_attempt, save_attempt
from fedbb.secagg.masked.verification import check_clients, read_agreements, read_keys
from fedbb.secagg.primitives.fixed_point import RingArray, as_bytes, to_ring
from fedbb.secagg.primitives.key_derivation import (
    NONCE,
    TAG,
    commitment,
    open_share,
    own_key,
    pair_key,
    seal_share,
)
from fedbb.secagg.primitives.keys import KEY, Entropy, Identity, public_of
from fedbb.secagg.primitives.masks import add_masks
from fedbb.secagg.primitives.shamir import SHARE, split
from fedbb.secagg.protocol.canonical import a_flag, a_number
from fedbb.secagg.protocol.journal import Journal
from fedbb.secagg.protocol.messages import Letter, Part, purpose, seal, unseal
from fedbb.secagg.protocol.replay_guard import Decisions
from fedbb.secagg.protocol.roster import AGGREGATOR, Roster
from fedbb.secagg.secure_aggregation import Values

SEALED = NONCE + 2 * SHARE + TAG


@dataclass(eq=False, repr=False)
class MaskedParty:
    """One client in masked sums. `run`, if given, is the only run it takes part in."""

    client: int
    identity: Identity
    roster: Roster
    journal: Journal
    run: str | None = None
    entropy: Entropy = os.urandom
    attempt: Attempt | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.roster.key_of(self.client) != self.identity.public:
            raise RefusedError(f"the roster knows client {self.client} by another key")
        self._decisions = Decisions(self.client, self.identity, self.journal)

    def answer(self, stage: str, message: bytes, values: Values) -> bytes:
        """Return the answer to a stage's message, or refuse with a `PrivacyError`."""
        attempt = self._awaiting(stage)
        occasion = None if attempt is None else attempt.occasion
        letter = unseal(message, self.roster, stage, AGGREGATOR, occasion)
        if attempt is None:
            after, answer = self._keys(letter)
        elif stage == "shares":
            after, answer = self._shares(attempt, letter)
        elif stage == "masked":
            after, answer = self._masked(attempt, letter, values)
        elif stage == "agree":
            after, answer = self._agree(attempt, letter)
        else:
            after, answer = None, self._unmask(attempt, letter)
        self.attempt = after
        return seal(answer, self.roster, self.identity)

    def save(self) -> bytes:
        """Return all it must know in the next stage; secret, for the client's own eyes only."""
        return b"" if self.attempt is None else save_attempt(self.attempt)

    def restore(self, saved: bytes) -> None:
        """Go on from what was saved."""
        self.attempt = load_attempt(saved) if saved else None

    def _awaiting(self, stage: str) -> Attempt | None:
        """Return the attempt that a stage goes on with; the first one begins another."""
        if stage not in STAGES:
            raise RefusedError(f"a masked sum has the stages {', '.join(STAGES)}, no others")
        if stage == STAGES[0]:
            return None
        if self.attempt is None or self.attempt.stage != stage:
            raise RefusedError(f"client {self.client} does not await stage {stage} now")
        return self.attempt

    def _keys(self, letter: Letter) -> tuple[Attempt, Letter]:
        """Draw fresh keys for an attempt and announce the public ones."""
        occasion, cohort = letter.occasion, letter.clients("cohort")
        if self.run is not None and occasion.run != self.run:
            raise RefusedError(f"client {self.client} takes part in {self.run}, in no other run")
        check_clients(self.client, cohort, self.roster.members.keys(), self.roster.least)
        self._decisions.begin(occasion)
        secrets = Pair(self.entropy(KEY), self.entropy(KEY))
        keys = (public_of(secrets.first), public_of(secrets.second))
        answer = self._letter(letter, {"cohort": list(cohort)}, *keys)
        return Attempt(occasion, cohort, "shares", secrets), answer

    def _shares(self, attempt: Attempt, letter: Letter) -> tuple[Attempt, Letter]:
        """Share the secrets behind this party's masks among the cohort, sealed for each."""
        cohort, secrets = attempt.cohort, attempt.secrets
        peers = read_keys(letter, self.roster, cohort)
        if peers[self.client] != Pair(public_of(secrets.first), public_of(secrets.second)):
            raise RefusedError("another key stands in the place of this client's own")
        seed, needed = self.entropy(KEY), self.roster.needed(len(cohort))
        seeds = split(seed, needed, cohort, self.entropy)
        masks = split(secrets.second, needed, cohort, self.entropy)
        sealed = [
            seal_share(
                secrets.first,
                peers[other].first,
                purpose(self.roster, attempt.occasion, "share", self.client, other),
                seeds[other] + masks[other],
                self.entropy(NONCE),
            )
            for other in self._others(attempt)
        ]
        held = {self.client: Pair(seeds[self.client], masks[self.client])}
        promise = commitment(self.roster, attempt.occasion, self.client, seed)
        after = replace(attempt, stage="masked", peers=peers, seed=seed, held=held)
        return after, self._letter(letter, {}, promise, *sealed)

    def _masked(self, attempt: Attempt, letter: Letter, values: Values) -> tuple[Attempt, Letter]:
        """Take in the others' shares, and give this client's vector under its masks."""
        held = {**attempt.held, **self._open_shares(attempt, letter)}
        length = a_number(letter.facts.get("length"), "the vector's length", 1)
        whole = a_flag(letter.facts.get("whole"), "whether numbers are whole")
        vector = to_ring(
            values(), cohort=len(attempt.cohort), whole=whole, scale_bits=self.roster.scale_bits
        )
        if len(vector) != length:
            raise RefusedError(f"a vector of {length} numbers is asked for, not of {len(vector)}")
        same = self._decisions.is_same(attempt.occasion, vector)
        self._mask(attempt, vector)
        # What hid the vector is needed no more, and what is not kept cannot be stolen.
        after = Attempt(attempt.occasion, attempt.cohort, "agree", held=held, same=same)
        facts = {"length": length, "whole": whole}
        return after, self._letter(letter, facts, as_bytes(vector))

    def _agree(self, attempt: Attempt, letter: Letter) -> tuple[Attempt, Letter]:
        """Sign the list of those who are in the sum: one list in an attempt."""
        survivors = letter.clients("survivors")
        needed = self.roster.needed(len(attempt.cohort))
        check_clients(self.client, survivors, attempt.cohort, needed)
        self._decisions.agree(attempt.occasion, survivors)
        after = replace(attempt, stage="unmask", survivors=survivors)
        return after, self._letter(letter, {"survivors": list(survivors), "same": attempt.same})

    def _unmask(self, attempt: Attempt, letter: Letter) -> Letter:
        """Give the shares that free the sum from its masks, once."""
        alive, dead = letter.clients("alive"), letter.clients("dead")
        if set(alive) & set(dead):
            raise RefusedError("a client is listed both as alive and as dead")
        if alive != attempt.survivors or {*alive, *dead} != set(attempt.cohort):
            raise RefusedError("the survivors are not those this client has agreed to")
        needed = self.roster.needed(len(attempt.cohort))
        signers, same = read_agreements(letter.parts, "agree", attempt.occasion, self.roster, alive)
        if signers < needed:
            raise RefusedError(f"{signers} survivors agree to their list; {needed} are needed")
        self._decisions.reveal(attempt.occasion, alive, same=same)
        seeds = b"".join(attempt.held[client].first for client in alive)
        masks = b"".join(attempt.held[client].second for client in dead)
        return self._letter(letter, {}, seeds, masks)

    def _mask(self, attempt: Attempt, vector: RingArray) -> None:
        """Hide a vector by a mask of its own and by one with each other, which cancel in a sum."""
        mine = (self.client, attempt.secrets.second)
        keys = {
            other: pair_key(
                self.roster, attempt.occasion, mine, (other, attempt.peers[other].second)
            )
            for other in self._others(attempt)
        }
        own = own_key(self.roster, attempt.occasion, self.client, attempt.seed)
        plus = [key for other, key in keys.items() if other > self.client]
        minus = [key for other, key in keys.items() if other < self.client]
        add_masks(vector, [own, *plus], minus)

    def _open_shares(self, attempt: Attempt, letter: Letter) -> dict[int, Pair]:
        """Return the shares of all others' secrets that they sealed for this client."""
        others = self._others(attempt)
        shares = {}
        for other, sealed in zip(others, letter.sized(*[SEALED] * len(others)), strict=True):
            bound = purpose(self.roster, attempt.occasion, "share", other, self.client)
            content = open_share(attempt.secrets.first, attempt.peers[other].first, bound, sealed)
            shares[other] = Pair(content[:SHARE], content[SHARE:])
        return shares

    def _others(self, attempt: Attempt) -> list[int]:
        return [client for client in attempt.cohort if client != self.client]

    def _letter(self, to: Letter, facts: Mapping[str, Any], *parts: Part) -> Letter:
        return Letter(to.occasion, to.stage, self.client, facts, parts)
