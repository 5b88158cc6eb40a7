"""The server's side of the masked sum of Bonawitz et al. (2017).

Each client hides its vector under a self mask and under one mask with every other client. Pairwise
masks cancel in the sum. The clients hold shares of the secrets of all masks; with enough shares the
server removes the self masks, and the masks with clients that dropped out. Neither a single party
nor t−1 of them can read a vector.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from fedbb.errors import PrivacyError, RefusedError
from fedbb.records import ClientFailure
from fedbb.secagg.masked.client import ENCRYPTED_SHARE, Pair
from fedbb.secagg.primitives.fixed_point import WORD, RingArray, add_masks
from fedbb.secagg.primitives.keys import KEY, public_key
from fedbb.secagg.primitives.shamir import SHARE, recover
from fedbb.secagg.protocol.key_derivation import pair_mask_key, seed_commitment, self_mask_key
from fedbb.secagg.protocol.messages import SignedMessage, verify_agreements
from fedbb.secagg.protocol.secure_aggregation import (
    CohortChangedError,
    StageExchange,
    SumRequest,
    SumServer,
)

log = logging.getLogger("fedbb")

HASH = 32


class MaskedSumServer(SumServer):
    """Sums vectors of any length.

    If a client drops out before it has masked its vector, the attempt starts again without it.
    """

    def sum_once(
        self, request: SumRequest, cohort: tuple[int, ...], exchange: StageExchange
    ) -> tuple[RingArray, Sequence[int]]:
        """Return the sum of one attempt and its clients."""
        exchange.require("keys", cohort, self.roster.least)
        attempt = _Attempt(request, cohort, exchange)
        present = attempt.prepare()
        if present != cohort:
            raise CohortChangedError(present)
        return attempt.collect()


@dataclass(eq=False)
class _Attempt:
    """The stages with one cohort; it holds one vector, whatever the cohort's size."""

    request: SumRequest
    cohort: tuple[int, ...]
    exchange: StageExchange
    _announced: dict[int, bytes] = field(default_factory=dict)
    _keys: dict[int, Pair] = field(default_factory=dict)
    _commitments: dict[int, bytes] = field(default_factory=dict)
    _encrypted: dict[int, dict[int, bytes]] = field(default_factory=dict)
    _agreed: dict[int, bytes] = field(default_factory=dict)
    _shares: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    _byzantine: set[int] = field(default_factory=set)

    def prepare(self) -> tuple[int, ...]:
        """Collect public keys and encrypted shares; return the clients that gave both."""
        facts = {"cohort": list(self.cohort)}
        present = self.exchange.broadcast("keys", self.cohort, self._accept_keys, facts)
        if present != self.cohort:
            return present
        announced = [self._announced[client] for client in self.cohort]
        return self.exchange.broadcast("shares", self.cohort, self._accept_shares, {}, announced)

    def collect(self) -> tuple[RingArray, tuple[int, ...]]:
        """Return the sum in the ring, and the clients whose vectors it includes."""
        total = np.zeros(self.request.length, dtype=np.uint64)
        survivors = self._add_masked(total)
        self._require("masked", survivors)
        signers = self.exchange.broadcast(
            "agree",
            survivors,
            lambda message, data: self._accept_agreement(message, data, survivors),
            {"survivors": list(survivors)},
        )
        self._require("agree", signers)
        dead = [client for client in self.cohort if client not in survivors]
        holders = self.exchange.broadcast(
            "unmask",
            signers,
            lambda message, _: self._accept_unmasking(message, len(survivors), len(dead)),
            {"alive": list(survivors), "dead": dead},
            [self._agreed[client] for client in signers],
        )
        self._require("unmask", holders)
        self._unmask(total, survivors, dead, holders)
        return total, survivors

    @property
    def needed(self) -> int:
        """How many clients of the cohort must stay."""
        return self.exchange.roster.needed(len(self.cohort))

    def _add_masked(self, total: RingArray) -> tuple[int, ...]:
        """Add each masked vector to the total as it arrives; return whose vectors arrived."""
        facts = {"length": self.request.length, "whole": self.request.whole}

        def add(message: SignedMessage, _: bytes) -> None:
            if message.facts != facts or [len(part) for part in message.parts] != [total.nbytes]:
                raise RefusedError("it is not the requested vector")
            np.add(total, np.frombuffer(message.parts[0], WORD), out=total)

        messages = {
            client: self.exchange.message(
                "masked", facts, [self._encrypted[other][client] for other in self._others(client)]
            )
            for client in self.cohort
        }
        return self.exchange.collect_stage("masked", messages, add)

    def _accept_keys(self, message: SignedMessage, data: bytes) -> None:
        if message.clients("cohort") != self.cohort:
            raise RefusedError("it names another cohort")
        self._keys[message.sender] = Pair(*message.sized(KEY, KEY))
        self._announced[message.sender] = data

    def _accept_shares(self, message: SignedMessage, _: bytes) -> None:
        others = self._others(message.sender)
        commitment, *encrypted = message.sized(HASH, *[ENCRYPTED_SHARE] * len(others))
        self._commitments[message.sender] = commitment
        self._encrypted[message.sender] = dict(zip(others, encrypted, strict=True))

    def _accept_agreement(
        self, message: SignedMessage, data: bytes, survivors: Sequence[int]
    ) -> None:
        # An agreement that the clients would refuse must not be shown to them.
        verify_agreements([data], message.attempt_id, self.exchange.roster, survivors)
        self._agreed[message.sender] = data

    def _accept_unmasking(self, message: SignedMessage, alive: int, dead: int) -> None:
        seeds, masks = message.sized(SHARE * alive, SHARE * dead)
        self._shares[message.sender] = seeds, masks

    def _unmask(
        self, total: RingArray, alive: Sequence[int], dead: Sequence[int], holders: Sequence[int]
    ) -> None:
        """Remove the survivors' self masks, and their masks with clients that dropped out."""
        roster, attempt_id = self.exchange.roster, self.exchange.attempt_id
        view = self.request.view
        seeds = self._recover(alive, 0, holders, self._is_seed)
        secrets = self._recover(dead, 1, holders, self._is_mask_key)
        own = [self_mask_key(roster, attempt_id, client, seed) for client, seed in seeds.items()]
        added: list[bytes] = []
        subtracted: list[bytes] = []
        for gone, secret in secrets.items():
            for client in alive:
                other = (client, self._keys[client].second)
                key = pair_mask_key(roster, attempt_id, view, (gone, secret), other)
                (added if client < gone else subtracted).append(key)
        add_masks(total, subtracted, [*own, *added])

    def _recover(
        self,
        owners: Sequence[int],
        which: int,
        holders: Sequence[int],
        is_right: Callable[[int, bytes], bool],
    ) -> dict[int, bytes]:
        """Return the owners' secrets; each holder gave its shares in the owners' order.

        Holders of false shares are named, and their other shares are used last.
        """
        secrets: dict[int, bytes] = {}
        for place, owner in enumerate(owners):
            here = slice(place * SHARE, (place + 1) * SHARE)
            order = sorted(holders, key=lambda holder: (holder in self._byzantine, holder))
            given = {holder: self._shares[holder][which][here] for holder in order}
            secret, byzantine = recover(given, self.needed, partial(is_right, owner))
            if secret is None:
                raise PrivacyError(self._describe_loss(owner, len(given)))
            self._byzantine.update(byzantine)
            secrets[owner] = secret
            for holder in byzantine:
                reason = f"gave a share of client {owner}'s secret that does not fit the others"
                log.warning("%s: client %d %s", self.exchange.attempt_id, holder, reason)
                self.exchange.false_shares.append(ClientFailure(holder, reason))
        return secrets

    def _describe_loss(self, owner: int, shares: int) -> str:
        return (
            f"{self.exchange.attempt_id}: no {self.needed} of {shares} shares of client {owner}'s "
            f"secret give what it committed to: either client {owner} gave false shares, or more "
            f"than {shares - self.needed} of the others did. There is no sum"
        )

    def _is_seed(self, client: int, seed: bytes) -> bool:
        roster, attempt_id = self.exchange.roster, self.exchange.attempt_id
        return seed_commitment(roster, attempt_id, client, seed) == self._commitments[client]

    def _is_mask_key(self, client: int, secret: bytes) -> bool:
        return public_key(secret) == self._keys[client].second

    def _others(self, client: int) -> list[int]:
        return [other for other in self.cohort if other != client]

    def _require(self, stage: str, clients: Sequence[int]) -> None:
        self.exchange.require(stage, clients, self.needed)
