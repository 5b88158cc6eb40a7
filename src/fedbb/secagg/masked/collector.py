"""The server's side of one attempt: it adds up vectors it cannot read, and unmasks the sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedbb.errors import PrivacyError, RefusedError
from fedbb.secagg.masked.attempt import Pair
from fedbb.secagg.masked.client import SEALED
from fedbb.secagg.masked.stage_exchange import Gathering
from fedbb.secagg.masked.verification import read_agreements
from fedbb.secagg.primitives.fixed_point import WORD, RingArray
from fedbb.secagg.primitives.key_derivation import commitment, own_key, pair_key
from fedbb.secagg.primitives.keys import KEY, public_of
from fedbb.secagg.primitives.masks import add_masks
from fedbb.secagg.primitives.shamir import SHARE, combine
from fedbb.secagg.protocol.messages import Letter
from fedbb.secagg.secure_aggregation import Question

HASH = 32


@dataclass(eq=False)
class Collector:
    """Goes through the stages with one cohort; holds one vector, whatever the cohort's size."""

    question: Question
    cohort: tuple[int, ...]
    gathering: Gathering
    _announced: dict[int, bytes] = field(default_factory=dict)
    _keys: dict[int, Pair] = field(default_factory=dict)
    _promises: dict[int, bytes] = field(default_factory=dict)
    _sealed: dict[int, dict[int, bytes]] = field(default_factory=dict)
    _agreed: dict[int, bytes] = field(default_factory=dict)
    _shares: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)

    def prepare(self) -> tuple[int, ...]:
        """Have keys announced and secrets shared; return who did, which must be all to go on."""
        facts = {"cohort": list(self.cohort)}
        present = self.gathering.ask_alike("keys", self.cohort, self._take_keys, facts)
        if present != self.cohort:
            return present
        letters = [self._announced[client] for client in self.cohort]
        return self.gathering.ask_alike("shares", self.cohort, self._take_shares, {}, letters)

    def collect(self) -> tuple[RingArray, tuple[int, ...]]:
        """Return the sum in the ring, and over whom, of those who stay to the end."""
        total = np.zeros(self.question.length, dtype=np.uint64)
        survivors = self._add_masked(total)
        self._require("masked", survivors)
        signers = self.gathering.ask_alike(
            "agree",
            survivors,
            lambda letter, data: self._take_agreement(letter, data, survivors),
            {"survivors": list(survivors)},
        )
        self._require("agree", signers)
        dead = [client for client in self.cohort if client not in survivors]
        holders = self.gathering.ask_alike(
            "unmask",
            signers,
            lambda letter, _: self._take_unmasking(letter, len(survivors), len(dead)),
            {"alive": list(survivors), "dead": dead},
            [self._agreed[client] for client in signers],
        )
        self._require("unmask", holders)
        self._unmask(total, survivors, dead, holders[: self.needed])
        return total, survivors

    @property
    def needed(self) -> int:
        """How many of the cohort must stay."""
        return self.gathering.roster.needed(len(self.cohort))

    def _add_masked(self, total: RingArray) -> tuple[int, ...]:
        """Add each masked vector to the total as it comes; return whose came."""
        facts = {"length": self.question.length, "whole": self.question.whole}

        def add(letter: Letter, _: bytes) -> None:
            if letter.facts != facts or [len(part) for part in letter.parts] != [total.nbytes]:
                raise RefusedError("it is not the vector that was asked for")
            np.add(total, np.frombuffer(letter.parts[0], WORD), out=total)

        letters = {
            client: self.gathering.letter(
                "masked", facts, [self._sealed[other][client] for other in self._others(client)]
            )
            for client in self.cohort
        }
        return self.gathering.ask("masked", letters, add)

    def _take_keys(self, letter: Letter, data: bytes) -> None:
        if letter.clients("cohort") != self.cohort:
            raise RefusedError("it is about another cohort")
        self._keys[letter.sender] = Pair(*letter.sized(KEY, KEY))
        self._announced[letter.sender] = data

    def _take_shares(self, letter: Letter, _: bytes) -> None:
        others = self._others(letter.sender)
        promise, *sealed = letter.sized(HASH, *[SEALED] * len(others))
        self._promises[letter.sender] = promise
        self._sealed[letter.sender] = dict(zip(others, sealed, strict=True))

    def _take_agreement(self, letter: Letter, data: bytes, survivors: Sequence[int]) -> None:
        # One that the parties would refuse to see must not be shown to them.
        read_agreements([data], "agree", letter.occasion, self.gathering.roster, survivors)
        self._agreed[letter.sender] = data

    def _take_unmasking(self, letter: Letter, alive: int, dead: int) -> None:
        seeds, masks = letter.sized(SHARE * alive, SHARE * dead)
        self._shares[letter.sender] = seeds, masks

    def _unmask(
        self, total: RingArray, alive: Sequence[int], dead: Sequence[int], holders: Sequence[int]
    ) -> None:
        """Take away the survivors' own masks, and those they had with clients that are gone."""
        roster, occasion = self.gathering.roster, self.gathering.occasion
        seeds = self._combined(alive, {holder: self._shares[holder][0] for holder in holders})
        secrets = self._combined(dead, {holder: self._shares[holder][1] for holder in holders})
        for client, seed in seeds.items():
            self._check(commitment(roster, occasion, client, seed), self._promises[client], client)
        for client, secret in secrets.items():
            self._check(public_of(secret), self._keys[client].second, client)
        own = [own_key(roster, occasion, client, seed) for client, seed in seeds.items()]
        added: list[bytes] = []
        taken: list[bytes] = []
        for gone, secret in secrets.items():
            for client in alive:
                other = (client, self._keys[client].second)
                key = pair_key(roster, occasion, (gone, secret), other)
                (added if client < gone else taken).append(key)
        add_masks(total, taken, [*own, *added])

    def _combined(self, owners: Sequence[int], given: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the owners' secrets, of which each holder gave its shares in the owners' order."""
        secrets = {}
        for place, owner in enumerate(owners):
            here = slice(place * SHARE, (place + 1) * SHARE)
            secrets[owner] = combine({holder: shares[here] for holder, shares in given.items()})
        return secrets

    def _check(self, found: bytes, promised: bytes, client: int) -> None:
        if found != promised:
            raise PrivacyError(
                f"{self.gathering.occasion}: the shares of client {client}'s secrets do not give "
                "the secret it is tied to; some party gave a false one, and there is no sum"
            )

    def _others(self, client: int) -> list[int]:
        return [other for other in self.cohort if other != client]

    def _require(self, stage: str, clients: Sequence[int]) -> None:
        self.gathering.require(stage, clients, self.needed)
