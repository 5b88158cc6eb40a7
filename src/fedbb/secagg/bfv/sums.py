"""Sums of integers under homomorphic encryption: BFV by TenSEAL, of the extra `fedbb[he]`.

The cipher, and the sides of client and server. A ciphertext holds 1024 numbers of the ring as 4096
limbs of 16 bits. The plaintext modulus is a prime just below 2^30 that allows batching of all
limbs, so that sums over 8191 clients still fit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import tenseal

from fedbb.errors import PrivacyError, RefusedError, TooFewError
from fedbb.records import IntArray
from fedbb.secagg.primitives.fixed_point import (
    LIMB_BITS,
    LIMBS,
    WORD,
    RingArray,
    as_bytes,
    from_limbs,
    to_limbs,
)
from fedbb.secagg.protocol.canonical import (
    canonical_json,
    parse_record,
    read_clients,
    read_flag,
    read_hex,
    read_integer,
    read_text,
)
from fedbb.secagg.protocol.messages import (
    AttemptId,
    Part,
    SignedMessage,
    check_group,
    sign_message,
    verify_message,
)
from fedbb.secagg.protocol.replay_guard import Journal
from fedbb.secagg.protocol.roster import AGGREGATOR, Roster
from fedbb.secagg.protocol.secure_aggregation import (
    CohortChangedError,
    StageExchange,
    SumClient,
    SumRequest,
    SumResult,
    SumServer,
    Transport,
    Values,
)

DEGREE = 4096
MODULUS = 1073692673
NUMBERS = DEGREE // LIMBS
MOST_CLIENTS = (MODULUS - 1) // 2 // (2**LIMB_BITS - 1)


def draw_context() -> tuple[bytes, bytes]:
    """Return a new context with its secret key, and the same context without it."""
    context = tenseal.context(
        tenseal.SCHEME_TYPE.BFV, poly_modulus_degree=DEGREE, plain_modulus=MODULUS
    )
    kept = {"save_galois_keys": False, "save_relin_keys": False}
    secret = context.serialize(save_public_key=True, save_secret_key=True, **kept)
    public = context.serialize(save_public_key=True, save_secret_key=False, **kept)
    return bytes(secret), bytes(public)


def encrypt(public: bytes, vector: RingArray) -> list[bytes]:
    """Return a vector as ciphertexts; the context must not contain the secret key."""
    context = _load_context(public)
    if context.has_secret_key():
        raise RefusedError("a context contains its secret key")
    return [
        bytes(tenseal.bfv_vector(context, to_limbs(piece).tolist()).serialize())
        for piece in _pieces(vector)
    ]


@dataclass(eq=False)
class BfvTotal:
    """Adds encrypted vectors without decrypting them."""

    public: bytes
    length: int

    def __post_init__(self) -> None:
        self._context = _load_context(self.public)
        self._totals: list[Any] = []

    def read(self, parts: Sequence[bytes]) -> list[Any]:
        """Return a client's ciphertexts; refuse invalid ones."""
        vectors = [_vector(self._context, part) for part in parts]
        sizes = [LIMBS * len(piece) for piece in _pieces(np.zeros(self.length, np.uint64))]
        if [vector.size() for vector in vectors] != sizes:
            raise RefusedError("ciphertexts hold another number of values than requested")
        return vectors

    def add(self, parts: Sequence[bytes]) -> None:
        """Add a client's ciphertexts; refuse invalid ones."""
        vectors = self.read(parts)
        if not self._totals:
            self._totals = vectors
        else:
            self._totals = [one + two for one, two in zip(self._totals, vectors, strict=True)]

    def parts(self) -> list[bytes]:
        """Return the ciphertexts of the sum."""
        return [bytes(total.serialize()) for total in self._totals]


def decrypt(secret: bytes, parts: Sequence[bytes]) -> RingArray:
    """Return the sum in these ciphertexts."""
    context = _load_context(secret)
    if not context.has_secret_key():
        raise PrivacyError("decryption needs the secret key, which is not here")
    pieces = [np.array(_vector(context, part).decrypt(), dtype=np.int64) for part in parts]
    if any(len(piece) % LIMBS or bool(np.any(piece < 0)) for piece in pieces):
        raise RefusedError("the decrypted values are not a sum")
    return np.concatenate([from_limbs(piece) for piece in pieces])


def _pieces(vector: RingArray) -> Iterator[RingArray]:
    return (vector[start : start + NUMBERS] for start in range(0, len(vector), NUMBERS))


def _load_context(context: bytes) -> Any:
    # TenSEAL reports invalid bytes by any exception of its C++ code.
    try:
        return tenseal.context_from(context)
    except Exception as error:
        raise RefusedError(f"bytes are not a BFV context: {type(error).__name__}") from None


def _vector(context: Any, part: bytes) -> Any:
    try:
        return tenseal.bfv_vector_from(context, part)
    except Exception as error:
        raise RefusedError(f"bytes are not a BFV ciphertext: {type(error).__name__}") from None


STAGES = ("context", "encrypt", "open", "decrypt")
_FIELDS = frozenset(
    ("run", "round", "attempt", "token", "cohort", "context", "view", "same", "parts", "promised")
)


@dataclass(frozen=True, repr=False)
class BfvState:
    """The state of a client between stages.

    Args:
        attempt_id: which attempt it is.
        cohort: the clients that the attempt began with.
        context: the context with its secret key, at the key-holder.
        view: what this client computed its vector from.
        same: its vector is unchanged in all attempts at this round.
        parts: its ciphertexts, until it has given them.
        promised: the digests of all clients' ciphertexts, at the key-holder, once it has given its
            own.
    """

    attempt_id: AttemptId
    cohort: tuple[int, ...]
    context: bytes = b""
    view: str = ""
    same: bool = True
    parts: tuple[bytes, ...] = ()
    promised: Mapping[int, str] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class BfvSumClient(SumClient):
    """One client in sums under BFV.

    Anybody can add up ciphertexts, and subtract them. A client that saw the others' before it gave
    its own could take them out of the sum, all but one. So every client first promises its
    ciphertexts by their digest, and gives them once all have promised.
    """

    state: BfvState | None = field(default=None, init=False)

    def answer(self, stage: str, data: bytes, values: Values, view: str = "") -> bytes:
        """Return the answer to the message of a stage, or refuse it with a `PrivacyError`."""
        if stage not in STAGES:
            raise RefusedError(f"a sum under BFV has the stages {', '.join(STAGES)}, no others")
        message = verify_message(data, self.roster, stage, AGGREGATOR)
        self._check_run(message.attempt_id)
        if stage == "context":
            answer = self._draw_context(message)
        elif stage == "encrypt":
            answer = self._encrypt(message, values, view)
        elif stage == "open":
            answer = self._give(message)
        else:
            answer = self._decrypt(message)
        return sign_message(answer, self.roster, self.identity)

    def save(self) -> bytes:
        """Return the state that the next stage needs. It is secret."""
        return b"" if self.state is None else _save(self.state)

    def restore(self, saved: bytes) -> None:
        """Continue from a saved state."""
        self.state = _load(saved) if saved else None

    def _draw_context(self, message: SignedMessage) -> SignedMessage:
        """Draw keys, and return all but the secret one."""
        cohort = self._check_cohort(message)
        secret, public = draw_context()
        self.state = BfvState(message.attempt_id, cohort, secret)
        return self._reply(message, {"cohort": list(cohort)}, public)

    def _encrypt(self, message: SignedMessage, values: Values, view: str) -> SignedMessage:
        """Encrypt this client's numbers for the one key-holder, and promise the ciphertexts."""
        attempt_id, cohort = message.attempt_id, self._check_cohort(message)
        if len(message.parts) != 1:
            raise RefusedError("a sum under BFV has one key-holder")
        context = verify_message(message.parts[0], self.roster, "context", None, attempt_id)
        if context.sender not in cohort or context.clients("cohort") != cohort:
            raise RefusedError("the key-holder has keys for another cohort")
        if len(context.parts) != 1:
            raise RefusedError("a key-holder gives one context")
        self._guard.begin(attempt_id)
        self._guard.bind_view(attempt_id, view)
        vector = self._vector(message, values, len(cohort), whole=True)
        same = self._guard.is_same(attempt_id, vector)
        parts = tuple(encrypt(bytes(context.parts[0]), vector))
        digest = _digest(parts)
        self._guard.encrypt_for(attempt_id, context.sender, digest)
        own = self.state
        if own is None or own.attempt_id != attempt_id:
            own = BfvState(attempt_id, cohort)
        self.state = replace(own, view=view, same=same, parts=parts)
        return self._reply(message, {"view": view, "same": same, "sha256": digest})

    def _give(self, message: SignedMessage) -> SignedMessage:
        """Give the ciphertexts, once, after all clients of the sum have promised theirs."""
        state = self.state
        if state is None or state.attempt_id != message.attempt_id or not state.parts:
            raise RefusedError(f"client {self.client} has no ciphertexts to give in this sum")
        clients = message.clients("clients")
        check_group(self.client, clients, state.cohort, self.roster.needed(len(state.cohort)))
        promised = _read_promises(message, self.roster, clients)
        self._guard.disclose(state.attempt_id)
        facts = {"view": state.view, "same": state.same, "promised": _digest_promises(promised)}
        # The ciphertexts are dropped: given twice, they could stand under two lists of promises.
        self.state = replace(state, parts=(), promised=promised) if state.context else None
        return self._reply(message, facts, *state.parts)

    def _decrypt(self, message: SignedMessage) -> SignedMessage:
        """Add up the clients' ciphertexts, decrypt the sum once, and drop the key."""
        state = self.state
        if state is None or state.attempt_id != message.attempt_id or not state.promised:
            raise RefusedError(f"client {self.client} holds no keys for this sum")
        survivors = message.clients("survivors")
        check_group(self.client, survivors, state.cohort, self.roster.needed(len(state.cohort)))
        length = read_integer(message.facts.get("length"), "the vector's length", 1)
        if len(message.parts) != len(survivors):
            raise RefusedError("a sum needs one signed ciphertext from each of its clients")
        total, digests, same = BfvTotal(state.context, length), [], True
        for client, part in zip(survivors, message.parts, strict=True):
            given = verify_message(part, self.roster, "open", client, state.attempt_id)
            _check_given(given, state.view, state.promised)
            same &= read_flag(given.facts.get("same"), "whether a vector is the same")
            total.add([bytes(piece) for piece in given.parts])
            digests.append(_digest(given.parts))
        self._guard.reveal(state.attempt_id, survivors, same=same)
        result = decrypt(state.context, total.parts())
        if len(result) != length:
            raise RefusedError("the decrypted vector has another length")
        self.state = None
        facts = {"survivors": list(survivors), "sha256": digests}
        return self._reply(message, facts, as_bytes(result))


def _read_promises(
    message: SignedMessage, roster: Roster, clients: Sequence[int]
) -> dict[int, str]:
    """Return the digests of ciphertexts that these clients signed."""
    if len(message.parts) != len(clients):
        raise RefusedError("ciphertexts are given after one signed promise from each client")
    promises = {
        client: verify_message(part, roster, "encrypt", client, message.attempt_id)
        for client, part in zip(clients, message.parts, strict=True)
    }
    return {
        client: read_text(promise.facts.get("sha256"), "a digest")
        for client, promise in promises.items()
    }


def _check_given(given: SignedMessage, view: str, promised: Mapping[int, str]) -> None:
    """Refuse ciphertexts of another view, or others than all clients were promised."""
    client = given.sender
    if given.facts.get("view") != view:
        raise RefusedError(f"client {client} received another recipe than this one")
    if given.facts.get("promised") != _digest_promises(promised):
        raise RefusedError(f"client {client} was shown other promises than this one")
    if _digest(given.parts) != promised.get(client):
        raise RefusedError(f"client {client} gave other ciphertexts than it promised")


def _digest_promises(promised: Mapping[int, str]) -> str:
    listed = [[client, digest] for client, digest in sorted(promised.items())]
    return hashlib.sha256(canonical_json(listed)).hexdigest()


def verify_receipt(
    receipt: Part, roster: Roster, client: int, journal: Journal, totals: IntArray
) -> None:
    """Verify, at a client, what the key-holder signed about a sum.

    Args:
        receipt: the key-holder's answer, which the server passes on.
        roster: the roster pinned at the client.
        client: the client.
        journal: the client's decisions, with the digest of its ciphertext and its key-holder.
        totals: the sum that the server claims.

    Raises:
        RefusedError: another key-holder signed, the client's own ciphertext is not in the sum, or
            the key-holder decrypted another sum.
    """
    message = verify_message(receipt, roster, "decrypt", None)
    encrypted = journal.lookup(f"encrypted {message.attempt_id.token}")
    if encrypted != f"for {message.sender}: {_digest_of(client, message)}":
        raise RefusedError("this client's own ciphertext is not in the receipt of its key-holder")
    if [bytes(part) for part in message.parts] != [bytes(as_bytes(totals.view(np.uint64)))]:
        raise RefusedError("the key-holder decrypted other sums than the server claims")


def _digest_of(client: int, receipt: SignedMessage) -> str:
    """Return the digest of a client's ciphertexts in a receipt, empty if there is none."""
    survivors, digests = receipt.clients("survivors"), receipt.facts.get("sha256")
    if not isinstance(digests, list) or len(digests) != len(survivors):
        raise RefusedError("a receipt must name one ciphertext for each client")
    return read_text(dict(zip(survivors, digests, strict=True)).get(client, ""), "a digest")


def _digest(parts: Sequence[Part]) -> str:
    """Return the SHA-256 of a client's ciphertexts, each with its length."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()


def _save(state: BfvState) -> bytes:
    facts = {
        "cohort": list(state.cohort),
        "context": state.context.hex(),
        "view": state.view,
        "same": state.same,
        "parts": [part.hex() for part in state.parts],
        "promised": [[client, digest] for client, digest in sorted(state.promised.items())],
    }
    return canonical_json(asdict(state.attempt_id) | facts)


def _load(saved: bytes) -> BfvState:
    what = "a saved sum under BFV"
    record = parse_record(saved, what, _FIELDS)
    parts, promised = record["parts"], record["promised"]
    if not isinstance(parts, list) or not isinstance(promised, list):
        raise RefusedError(f"{what} has no lists of ciphertexts and promises")
    if any(not isinstance(entry, list) or len(entry) != 2 for entry in promised):
        raise RefusedError(f"{what} has an invalid promise")
    return BfvState(
        AttemptId.read(record, what),
        read_clients(record["cohort"], "its cohort"),
        read_hex(record["context"], "its context"),
        read_text(record["view"], "its view"),
        read_flag(record["same"], "whether its vector is the same"),
        tuple(read_hex(part, "a ciphertext") for part in parts),
        {
            read_integer(client, "a client", 0): read_text(digest, "a digest")
            for client, digest in promised
        },
    )


class BfvSumServer(SumServer):
    """Sums integers; the first client of the cohort that answers holds the keys."""

    def __call__(
        self, request: SumRequest, clients: Sequence[int], transport: Transport
    ) -> SumResult:
        """Return the sum over those of the clients who stay to the end."""
        if not request.whole or len(set(clients)) > MOST_CLIENTS:
            raise PrivacyError(f"BFV sums integers of up to {MOST_CLIENTS} clients")
        return super().__call__(request, clients, transport)

    def sum_once(
        self, request: SumRequest, cohort: tuple[int, ...], exchange: StageExchange
    ) -> tuple[RingArray, Sequence[int]]:
        """Return the sum of one attempt and its clients."""
        exchange.require("context", cohort, self.roster.least)
        attempt = _Attempt(request, cohort, exchange)
        if not attempt.open():
            raise CohortChangedError(cohort[1:])
        for collect in (attempt.collect_promises, attempt.collect):
            present = collect()
            if attempt.holder not in present:
                raise TooFewError(
                    f"{exchange.attempt_id}: client {attempt.holder}, which holds the keys, "
                    "dropped out; the others encrypt for nobody else in this round. Nothing was "
                    "decrypted, and the sum can be repeated once the client is back"
                )
        return attempt.reveal(present), present


@dataclass(eq=False)
class _Attempt:
    """The stages with one cohort, whose first client is the key-holder."""

    request: SumRequest
    cohort: tuple[int, ...]
    exchange: StageExchange
    _context: bytes = b""
    _check: BfvTotal | None = None
    _promises: dict[int, bytes] = field(default_factory=dict)
    _promised: dict[int, str] = field(default_factory=dict)
    _given: dict[int, bytes] = field(default_factory=dict)
    _sum: RingArray | None = None

    @property
    def holder(self) -> int:
        """The client that draws the keys."""
        return self.cohort[0]

    def open(self) -> bool:
        """Let the key-holder draw keys; return whether it did."""
        facts = {"cohort": list(self.cohort)}
        return bool(self.exchange.broadcast("context", [self.holder], self._accept_context, facts))

    def collect_promises(self) -> tuple[int, ...]:
        """Collect the digests of the clients' ciphertexts; return who is left of the cohort."""
        facts = {"cohort": list(self.cohort), "length": self.request.length}
        return self.exchange.broadcast(
            "encrypt", self.cohort, self._keep_promise, facts, [self._context]
        )

    def collect(self) -> tuple[int, ...]:
        """Collect the ciphertexts of those who promised; return who is left."""
        clients = sorted(self._promises)
        self.exchange.require("encrypt", clients, self.exchange.roster.needed(len(self.cohort)))
        promises = [self._promises[client] for client in clients]
        return self.exchange.broadcast("open", clients, self._keep, {"clients": clients}, promises)

    def reveal(self, survivors: tuple[int, ...]) -> RingArray:
        """Return the sum as the key-holder decrypts it."""
        self.exchange.require("open", survivors, self.exchange.roster.needed(len(self.cohort)))
        holders = self.exchange.broadcast(
            "decrypt",
            [self.holder],
            self._accept_sum,
            {"survivors": list(survivors), "length": self.request.length},
            [self._given[client] for client in survivors],
        )
        self.exchange.require("decrypt", holders, 1)
        assert self._sum is not None
        return self._sum

    def _accept_context(self, message: SignedMessage, data: bytes) -> None:
        if message.clients("cohort") != self.cohort or len(message.parts) != 1:
            raise RefusedError("it is not a context for this cohort")
        self._check = BfvTotal(bytes(message.parts[0]), self.request.length)
        self._context = data

    def _keep_promise(self, message: SignedMessage, data: bytes) -> None:
        if message.facts.get("view") != self.request.view:
            raise RefusedError("it received another recipe")
        self._promised[message.sender] = read_text(message.facts.get("sha256"), "a digest")
        self._promises[message.sender] = data

    def _keep(self, message: SignedMessage, data: bytes) -> None:
        # What the key-holder would refuse must not be passed on to it: there would be no sum.
        assert self._check is not None
        _check_given(message, self.request.view, self._promised)
        read_flag(message.facts.get("same"), "whether a vector is the same")
        self._check.read([bytes(part) for part in message.parts])
        self._given[message.sender] = data

    def _accept_sum(self, message: SignedMessage, data: bytes) -> None:
        (content,) = message.sized(self.request.length * WORD.itemsize)
        self._sum = np.frombuffer(content, WORD).astype(np.uint64)
        self.exchange.receipt = data
