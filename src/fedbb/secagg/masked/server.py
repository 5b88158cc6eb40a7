"""The server's side of the masked sum of Bonawitz et al. (2017).

Each client hides its vector under a self mask and under one mask with every other client. Pairwise
masks cancel in the sum. The clients hold shares of the secrets of all masks; with enough shares the
server removes the self masks, and the masks with clients that dropped out. Neither a single party
nor t−1 of them can read a vector.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from fedbb.errors import PrivacyError, RefusedError, TooFewError
from fedbb.records import ClientFailure
from fedbb.secagg.masked.client import ENCRYPTED_SHARE
from fedbb.secagg.masked.graph import (
    Announcement,
    read_agreement,
    read_announcement,
    shown_agreements,
)
from fedbb.secagg.primitives.fixed_point import WORD, RingArray, add_masks
from fedbb.secagg.primitives.keys import open_secret, public_key
from fedbb.secagg.primitives.shamir import SHARE, recover
from fedbb.secagg.protocol.key_derivation import pair_mask_key, seed_commitment, self_mask_key
from fedbb.secagg.protocol.messages import SignedMessage
from fedbb.secagg.protocol.roster import Roster
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


Shares = dict[int, bytes]


@dataclass(eq=False)
class _Attempt:
    """The stages with one cohort; it holds one vector, whatever the cohort's size."""

    request: SumRequest
    cohort: tuple[int, ...]
    exchange: StageExchange
    _signed: dict[int, bytes] = field(default_factory=dict)
    _announced: dict[int, Announcement] = field(default_factory=dict)
    _commitments: dict[int, bytes] = field(default_factory=dict)
    _encrypted: dict[int, Shares] = field(default_factory=dict)
    _agreed: dict[int, tuple[bytes, bool]] = field(default_factory=dict)
    _shares: dict[int, tuple[Shares, Shares]] = field(default_factory=dict)
    _byzantine: set[int] = field(default_factory=set)

    def prepare(self) -> tuple[int, ...]:
        """Collect public keys and encrypted shares; return the clients that gave both."""
        facts = {"cohort": list(self.cohort)}
        present = self.exchange.broadcast("keys", self.cohort, self._accept_keys, facts)
        if present != self.cohort:
            return present
        return self.exchange.collect_stage("shares", self._announcements(), self._accept_shares)

    def collect(self) -> tuple[RingArray, tuple[int, ...]]:
        """Return the sum in the ring, and the clients whose vectors it includes."""
        total = np.zeros(self.request.length, dtype=np.uint64)
        survivors = self._add_masked(total)
        self._require("masked", survivors)
        self._require_holders("masked", survivors)
        signers = self.exchange.broadcast(
            "agree",
            survivors,
            lambda message, data: self._accept_agreement(message, data, survivors),
            {"survivors": list(survivors)},
        )
        self._require("agree", signers)
        dead = [client for client in self.cohort if client not in set(survivors)]
        facts, parts = shown_agreements(self._roster, self._agreed)
        holders = self.exchange.broadcast(
            "unmask",
            signers,
            lambda message, _: self._accept_unmasking(message, survivors, dead),
            {"alive": list(survivors), "dead": dead, **facts},
            parts,
        )
        self._require_holders("unmask", holders)
        self._unmask(total, survivors, dead, holders)
        return total, survivors

    @property
    def needed(self) -> int:
        """How many clients of the cohort must stay."""
        return self._roster.needed(len(self.cohort))

    @property
    def _roster(self) -> Roster:
        return self.exchange.roster

    @cached_property
    def _owners(self) -> dict[int, tuple[int, ...]]:
        """The clients whose secrets each client gets shares of, ascending."""
        if not self._roster.is_sparse:
            return dict.fromkeys(self.cohort, self.cohort)
        found: dict[int, list[int]] = defaultdict(list)
        for client in self.cohort:
            for holder in self._announced[client].drawn:
                found[holder].append(client)
        return {client: tuple(found[client]) for client in self.cohort}

    def _holders(self, owner: int) -> tuple[int, ...]:
        """Return who gets shares of a client's secrets."""
        return self._announced[owner].drawn if self._roster.is_sparse else self.cohort

    def _announcements(self) -> dict[int, bytes]:
        """Return the messages that show each client what its neighbours announced."""
        if not self._roster.is_sparse:
            announced = [self._signed[client] for client in self.cohort]
            return dict.fromkeys(self.cohort, self.exchange.message("shares", {}, announced))
        messages = {}
        for client in self.cohort:
            senders = sorted({client, *self._holders(client), *self._owners[client]})
            parts = [self._signed[sender] for sender in senders]
            messages[client] = self.exchange.message("shares", {"senders": senders}, parts)
        return messages

    def _add_masked(self, total: RingArray) -> tuple[int, ...]:
        """Add each masked vector to the total as it arrives; return whose vectors arrived."""
        facts = {"length": self.request.length, "whole": self.request.whole}

        def add(message: SignedMessage, _: bytes) -> None:
            if message.facts != facts or [len(part) for part in message.parts] != [total.nbytes]:
                raise RefusedError("it is not the requested vector")
            np.add(total, np.frombuffer(message.parts[0], WORD), out=total)

        messages = {}
        for client in self.cohort:
            others = _without(client, self._owners[client])
            shares = [self._encrypted[other][client] for other in others]
            messages[client] = self.exchange.message("masked", facts, shares)
        return self.exchange.collect_stage("masked", messages, add)

    def _accept_keys(self, message: SignedMessage, data: bytes) -> None:
        self._announced[message.sender] = read_announcement(message, self._roster, self.cohort)
        self._signed[message.sender] = data

    def _accept_shares(self, message: SignedMessage, _: bytes) -> None:
        others = _without(message.sender, self._holders(message.sender))
        commitment, *encrypted = message.sized(HASH, *[ENCRYPTED_SHARE] * len(others))
        self._commitments[message.sender] = commitment
        self._encrypted[message.sender] = dict(zip(others, encrypted, strict=True))

    def _accept_agreement(
        self, message: SignedMessage, data: bytes, survivors: Sequence[int]
    ) -> None:
        self._agreed[message.sender] = read_agreement(message, data, self._roster, survivors)

    def _accept_unmasking(
        self, message: SignedMessage, alive: Sequence[int], dead: Sequence[int]
    ) -> None:
        held = set(self._owners[message.sender])
        groups = [[client for client in group if client in held] for group in (alive, dead)]
        seeds, masks = message.sized(*(SHARE * len(group) for group in groups))
        self._shares[message.sender] = _cut(seeds, groups[0]), _cut(masks, groups[1])

    def _unmask(
        self, total: RingArray, alive: Sequence[int], dead: Sequence[int], holders: Sequence[int]
    ) -> None:
        """Remove the survivors' self masks, and their masks with clients that dropped out."""
        roster, attempt_id = self._roster, self.exchange.attempt_id
        view = self.request.view
        seeds = self._recover(alive, 0, holders, self._is_seed)
        secrets = self._recover(dead, 1, holders, self._is_mask_key)
        own = [self_mask_key(roster, attempt_id, client, seed) for client, seed in seeds.items()]
        added: list[bytes] = []
        subtracted: list[bytes] = []
        for gone, secret in secrets.items():
            mine = (gone, open_secret(secret))
            neighbours = {*self._holders(gone), *self._owners[gone]}
            for client in alive:
                if client in neighbours:
                    other = (client, self._announced[client].keys.second)
                    key = pair_mask_key(roster, attempt_id, view, mine, other)
                    (added if client < gone else subtracted).append(key)
        add_masks(total, subtracted, [*own, *added])

    def _recover(
        self,
        owners: Sequence[int],
        which: int,
        holders: Sequence[int],
        is_right: Callable[[int, bytes], bool],
    ) -> dict[int, bytes]:
        """Return the owners' secrets.

        Holders of false shares are named, and their other shares are used last.
        """
        secrets: dict[int, bytes] = {}
        present, needed = set(holders), self._roster.holders_needed(len(self.cohort))
        for owner in owners:
            able = (holder for holder in self._holders(owner) if holder in present)
            order = sorted(able, key=lambda holder: (holder in self._byzantine, holder))
            given = {holder: self._shares[holder][which][owner] for holder in order}
            secret, byzantine = recover(given, needed, partial(is_right, owner))
            if secret is None:
                raise PrivacyError(self._describe_loss(owner, needed, len(given)))
            self._byzantine.update(byzantine)
            secrets[owner] = secret
            for holder in byzantine:
                reason = f"gave a share of client {owner}'s secret that does not fit the others"
                log.warning("%s: client %d %s", self.exchange.attempt_id, holder, reason)
                self.exchange.false_shares.append(ClientFailure(holder, reason))
        return secrets

    def _describe_loss(self, owner: int, needed: int, shares: int) -> str:
        return (
            f"{self.exchange.attempt_id}: no {needed} of {shares} shares of client {owner}'s "
            f"secret give what it committed to: either client {owner} gave false shares, or more "
            f"than {shares - needed} of the others did. There is no sum"
        )

    def _is_seed(self, client: int, seed: bytes) -> bool:
        attempt_id = self.exchange.attempt_id
        return seed_commitment(self._roster, attempt_id, client, seed) == self._commitments[client]

    def _is_mask_key(self, client: int, secret: bytes) -> bool:
        return public_key(secret) == self._announced[client].keys.second

    def _require(self, stage: str, clients: Sequence[int]) -> None:
        self.exchange.require(stage, clients, self.needed)

    def _require_holders(self, stage: str, clients: Sequence[int]) -> None:
        """Raise `TooFewError` if too few of those are left that hold shares of some client."""
        if not self._roster.is_sparse:
            self._require(stage, clients)
            return
        present, needed = set(clients), self._roster.neighbours_needed
        for owner in self.cohort:
            left = len(present.intersection(self._holders(owner)))
            if left < needed:
                raise TooFewError(
                    f"{self.exchange.attempt_id}: after stage {stage} of a secure sum {left} of "
                    f"the {self._roster.neighbours} neighbours of client {owner} are left, and "
                    f"{needed} are needed"
                )


def _without(client: int, clients: Sequence[int]) -> list[int]:
    return [other for other in clients if other != client]


def _cut(shares: bytes, owners: Sequence[int]) -> Shares:
    """Return the shares of each owner, which follow one another."""
    return {
        owner: shares[place * SHARE : (place + 1) * SHARE] for place, owner in enumerate(owners)
    }
