"""The client's side of a masked sum: it trusts the roster and its own journal, not the server.

Two rules keep a sum from being decomposed. In one attempt a client agrees to one list of survivors
and unmasks it once. It helps with another attempt at the same round only over the same survivors,
all of whom sign that their vectors are unchanged: that sum is known already. Without this exception
a run whose server crashed between unmasking and saving could never continue.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fedbb.errors import RefusedError
from fedbb.secagg.masked.graph import (
    Pair,
    announced_facts,
    count_agreements,
    draw_neighbours,
    sign_survivors,
    verify_neighbours,
)
from fedbb.secagg.neighbours import MOST_ATTEMPTS
from fedbb.secagg.primitives.fixed_point import RingArray, add_masks, as_bytes
from fedbb.secagg.primitives.keys import KEY, Entropy, open_secret, public_key
from fedbb.secagg.primitives.shamir import SHARE, split
from fedbb.secagg.protocol.canonical import (
    canonical_json,
    parse_record,
    read_clients,
    read_flag,
    read_hex,
    read_integer,
)
from fedbb.secagg.protocol.key_derivation import (
    NONCE,
    TAG,
    decrypt_share,
    encrypt_share,
    key_purpose,
    pair_mask_key,
    seed_commitment,
    self_mask_key,
)
from fedbb.secagg.protocol.messages import (
    AttemptId,
    SignedMessage,
    check_group,
    sign_message,
    verify_message,
)
from fedbb.secagg.protocol.roster import AGGREGATOR
from fedbb.secagg.protocol.secure_aggregation import SumClient, Values

STAGES = ("keys", "shares", "masked", "agree", "unmask")
ENCRYPTED_SHARE = NONCE + 2 * SHARE + TAG


EMPTY = Pair(b"", b"")


@dataclass(frozen=True, repr=False)
class AttemptState:
    """A client's state within an attempt; secrets are dropped once later stages do not need them.

    Args:
        attempt_id: which attempt it is.
        cohort: the clients that the attempt began with, including this one.
        stage: the stage that comes next.
        secrets: this client's secret keys, until it has masked its vector.
        drawn: the neighbours that it drew; none in a complete graph, where all are neighbours.
        peers: its neighbours' public keys, until then.
        owners: the clients whose secrets it gets shares of.
        seed: the seed of its self mask, until then.
        held: shares of the others' secrets, and its own share of its own, by client.
        survivors: whose vectors are in the sum, once it has agreed.
        same: its vector is unchanged in all attempts at this round.
    """

    attempt_id: AttemptId
    cohort: tuple[int, ...]
    stage: str
    secrets: Pair = EMPTY
    drawn: tuple[int, ...] = ()
    peers: Mapping[int, Pair] = field(default_factory=dict)
    owners: tuple[int, ...] = ()
    seed: bytes = b""
    held: Mapping[int, Pair] = field(default_factory=dict)
    survivors: tuple[int, ...] = ()
    same: bool = True


@dataclass(eq=False, repr=False)
class MaskedSumClient(SumClient):
    """One client in masked sums; `entropy` is the source of its random bytes."""

    entropy: Entropy = os.urandom
    attempt: AttemptState | None = field(default=None, init=False)

    def answer(self, stage: str, data: bytes, values: Values, view: str = "") -> bytes:
        """Return the answer to the message of a stage, or refuse it with a `PrivacyError`."""
        attempt = self._expect(stage)
        attempt_id = None if attempt is None else attempt.attempt_id
        message = verify_message(data, self.roster, stage, AGGREGATOR, attempt_id)
        if attempt is None:
            after, answer = self._announce_keys(message)
        elif stage == "shares":
            after, answer = self._share_secrets(attempt, message)
        elif stage == "masked":
            after, answer = self._mask_vector(attempt, message, values, view)
        elif stage == "agree":
            after, answer = self._agree(attempt, message)
        else:
            after, answer = None, self._unmask(attempt, message)
        self.attempt = after
        return sign_message(answer, self.roster, self.identity)

    def save(self) -> bytes:
        """Return the state that the next stage needs. It is secret."""
        return b"" if self.attempt is None else save_attempt(self.attempt)

    def restore(self, saved: bytes) -> None:
        """Continue from a saved state."""
        self.attempt = load_attempt(saved) if saved else None

    def _expect(self, stage: str) -> AttemptState | None:
        """Return the attempt that a stage continues; None if the stage begins another."""
        if stage not in STAGES:
            raise RefusedError(f"a masked sum has the stages {', '.join(STAGES)}, no others")
        if stage == STAGES[0]:
            return None
        if self.attempt is None or self.attempt.stage != stage:
            raise RefusedError(f"client {self.client} does not expect stage {stage} now")
        return self.attempt

    def _announce_keys(self, message: SignedMessage) -> tuple[AttemptState, SignedMessage]:
        """Draw fresh keys for an attempt and announce the public ones."""
        attempt_id = message.attempt_id
        self._check_run(attempt_id)
        cohort = self._check_cohort(message)
        self._guard.begin(attempt_id, MOST_ATTEMPTS if self.roster.is_sparse else None)
        secrets = Pair(self.entropy(KEY), self.entropy(KEY))
        drawn = draw_neighbours(self.roster, cohort, self.client, self.entropy)
        keys = (public_key(secrets.first), public_key(secrets.second))
        answer = self._reply(message, announced_facts(self.roster, cohort, drawn), *keys)
        return AttemptState(attempt_id, cohort, "shares", secrets, drawn), answer

    def _share_secrets(
        self, attempt: AttemptState, message: SignedMessage
    ) -> tuple[AttemptState, SignedMessage]:
        """Split the secrets of this client's masks among its neighbours, encrypted for each."""
        cohort, secrets = attempt.cohort, attempt.secrets
        found = verify_neighbours(message, self.roster, cohort, self.client, attempt.drawn)
        peers, holders = found.peers, found.holders
        if peers[self.client] != Pair(public_key(secrets.first), public_key(secrets.second)):
            raise RefusedError("this client's own key was replaced by another")
        seed, needed = self.entropy(KEY), self.roster.holders_needed(len(cohort))
        seeds = split(seed, needed, holders, self.entropy)
        masks = split(secrets.second, needed, holders, self.entropy)
        secret = open_secret(secrets.first)
        encrypted = [
            encrypt_share(
                secret,
                peers[other].first,
                key_purpose(self.roster, attempt.attempt_id, "share", self.client, other),
                seeds[other] + masks[other],
                self.entropy(NONCE),
            )
            for other in self._others(holders)
        ]
        own = [self.client] if self.client in holders else []
        held = {client: Pair(seeds[client], masks[client]) for client in own}
        commitment = seed_commitment(self.roster, attempt.attempt_id, self.client, seed)
        after = replace(
            attempt, stage="masked", peers=peers, owners=found.owners, seed=seed, held=held
        )
        return after, self._reply(message, {}, commitment, *encrypted)

    def _mask_vector(
        self, attempt: AttemptState, message: SignedMessage, values: Values, view: str
    ) -> tuple[AttemptState, SignedMessage]:
        """Decrypt the others' shares, and return this client's masked vector."""
        held = {**attempt.held, **self._decrypt_shares(attempt, message)}
        whole = read_flag(message.facts.get("whole"), "whether numbers are whole")
        self._guard.bind_view(attempt.attempt_id, view)
        vector = self._vector(message, values, len(attempt.cohort), whole=whole)
        same = self._guard.is_same(attempt.attempt_id, vector)
        self._add_masks(attempt, vector, view)
        # The secrets of the masks are not needed any more; what is not stored cannot be stolen.
        after = AttemptState(attempt.attempt_id, attempt.cohort, "agree", held=held, same=same)
        facts = {"length": len(vector), "whole": whole}
        return after, self._reply(message, facts, as_bytes(vector))

    def _agree(
        self, attempt: AttemptState, message: SignedMessage
    ) -> tuple[AttemptState, SignedMessage]:
        """Sign the list of the clients in the sum: one list per attempt."""
        survivors = message.clients("survivors")
        needed = self.roster.needed(len(attempt.cohort))
        check_group(self.client, survivors, attempt.cohort, needed)
        self._guard.agree(attempt.attempt_id, survivors)
        after = replace(attempt, stage="unmask", survivors=survivors)
        facts, parts = sign_survivors(
            self.roster, attempt.attempt_id, self.identity, survivors, same=attempt.same
        )
        return after, self._reply(message, facts, *parts)

    def _unmask(self, attempt: AttemptState, message: SignedMessage) -> SignedMessage:
        """Release the shares that remove the masks from the sum, once."""
        alive, dead = message.clients("alive"), message.clients("dead")
        if set(alive) & set(dead):
            raise RefusedError("a client is listed both as alive and as dead")
        if alive != attempt.survivors or {*alive, *dead} != set(attempt.cohort):
            raise RefusedError("the survivors are not those that this client has agreed to")
        needed = self.roster.needed(len(attempt.cohort))
        signers, same = count_agreements(message, self.roster, alive)
        if signers < needed:
            raise RefusedError(f"{signers} survivors agree to their list; {needed} are needed")
        self._guard.disclose(attempt.attempt_id)
        self._guard.reveal(attempt.attempt_id, alive, same=same)
        held = attempt.held
        seeds = b"".join(held[client].first for client in alive if client in held)
        masks = b"".join(held[client].second for client in dead if client in held)
        return self._reply(message, {}, seeds, masks)

    def _add_masks(self, attempt: AttemptState, vector: RingArray, view: str) -> None:
        """Add the self mask and one mask per neighbour.

        Pairwise masks cancel in a sum of clients with the same view.
        """
        mine = (self.client, open_secret(attempt.secrets.second))
        keys = {
            other: pair_mask_key(
                self.roster, attempt.attempt_id, view, mine, (other, attempt.peers[other].second)
            )
            for other in self._others(attempt.peers)
        }
        own = self_mask_key(self.roster, attempt.attempt_id, self.client, attempt.seed)
        plus = [key for other, key in keys.items() if other > self.client]
        minus = [key for other, key in keys.items() if other < self.client]
        add_masks(vector, [own, *plus], minus)

    def _decrypt_shares(self, attempt: AttemptState, message: SignedMessage) -> dict[int, Pair]:
        """Return the shares of the others' secrets that they encrypted for this client."""
        others = self._others(attempt.owners)
        parts = message.sized(*[ENCRYPTED_SHARE] * len(others))
        secret = open_secret(attempt.secrets.first)
        shares = {}
        for other, encrypted in zip(others, parts, strict=True):
            purpose = key_purpose(self.roster, attempt.attempt_id, "share", other, self.client)
            content = decrypt_share(secret, attempt.peers[other].first, purpose, encrypted)
            shares[other] = Pair(content[:SHARE], content[SHARE:])
        return shares

    def _others(self, clients: Iterable[int]) -> list[int]:
        return sorted(client for client in clients if client != self.client)


_FIELDS = frozenset(
    {"run", "round", "attempt", "token", "cohort", "stage"}
    | {"secrets", "drawn", "peers", "owners", "seed", "held", "survivors", "same"}
)


def save_attempt(attempt: AttemptState) -> bytes:
    """Return an attempt as bytes, which contain secrets."""
    return canonical_json(
        {
            **asdict(attempt.attempt_id),
            "cohort": list(attempt.cohort),
            "stage": attempt.stage,
            "secrets": _plain(attempt.secrets),
            "drawn": list(attempt.drawn),
            "owners": list(attempt.owners),
            "peers": [[client, *_plain(pair)] for client, pair in sorted(attempt.peers.items())],
            "seed": attempt.seed.hex(),
            "held": [[client, *_plain(pair)] for client, pair in sorted(attempt.held.items())],
            "survivors": list(attempt.survivors),
            "same": attempt.same,
        }
    )


def load_attempt(data: bytes) -> AttemptState:
    """Return the attempt in these bytes; refuse damaged ones."""
    record = parse_record(data, "a saved attempt", _FIELDS)
    if record["stage"] not in STAGES:
        raise RefusedError("a saved attempt has an unknown stage")
    return AttemptState(
        AttemptId.read(record, "a saved attempt"),
        read_clients(record["cohort"], "its cohort"),
        record["stage"],
        _pair(record["secrets"], KEY if record["stage"] in STAGES[:3] else 0),
        read_clients(record["drawn"], "its drawn neighbours"),
        _pairs(record["peers"], KEY),
        read_clients(record["owners"], "its owners of shares"),
        read_hex(record["seed"], "its seed"),
        _pairs(record["held"], SHARE),
        read_clients(record["survivors"], "its survivors"),
        read_flag(record["same"], "whether its vector is the same"),
    )


def _plain(pair: Pair) -> list[str]:
    return [pair.first.hex(), pair.second.hex()]


def _pair(value: Any, length: int) -> Pair:
    if not isinstance(value, list) or len(value) != 2:
        raise RefusedError("a saved attempt has an invalid pair")
    return Pair(*(read_hex(entry, "an entry of a pair", length) for entry in value))


def _pairs(value: Any, length: int) -> dict[int, Pair]:
    if not isinstance(value, list) or any(
        not isinstance(entry, list) or len(entry) != 3 for entry in value
    ):
        raise RefusedError("a saved attempt has invalid pairs")
    return {read_integer(client, "a client"): _pair(pair, length) for client, *pair in value}
