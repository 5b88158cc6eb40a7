"""What a party asks to see of the others, in their own handwriting, before it goes on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fedbb.errors import RefusedError
from fedbb.privacy.attempt import Pair
from fedbb.privacy.canonical import a_flag, spell
from fedbb.privacy.keys import KEY
from fedbb.privacy.letters import Letter, unseal
from fedbb.privacy.roster import Roster


def read_keys(letter: Letter, roster: Roster, cohort: Sequence[int]) -> dict[int, Pair]:
    """Return the public keys of a whole cohort, each announced and signed by its owner."""
    if len(letter.parts) != len(cohort):
        raise RefusedError("the cohort's keys are not complete")
    keys = {}
    for client, part in zip(cohort, letter.parts, strict=True):
        announced = unseal(part, roster, "keys", client, letter.occasion)
        if announced.clients("cohort") != tuple(cohort):
            raise RefusedError(f"client {client} was told of another cohort")
        keys[client] = Pair(*announced.sized(KEY, KEY))
    every = [key for pair in keys.values() for key in (pair.first, pair.second)]
    if len(set(every)) < len(every):
        raise RefusedError("two public keys of a cohort are the same")
    return keys


def read_agreements(
    letter: Letter, roster: Roster, survivors: tuple[int, ...], needed: int
) -> bool:
    """Check that enough survivors signed the same list of survivors.

    Return whether all of them did, and that nobody's vector is another one than in an attempt
    before.
    """
    signers, same = set(), True
    for part in letter.parts:
        agreed = unseal(part, roster, "agree", None, letter.occasion)
        if agreed.clients("survivors") != survivors:
            raise RefusedError(f"client {agreed.sender} has agreed to another list of survivors")
        if agreed.sender not in survivors:
            raise RefusedError(f"client {agreed.sender} is no survivor and has no say in it")
        same &= a_flag(agreed.facts.get("same"), "whether a vector is the same")
        signers.add(agreed.sender)
    if len(signers) < needed:
        raise RefusedError(f"{len(signers)} survivors agree to their list; {needed} are needed")
    return same and signers == set(survivors)


def digest_of(clients: Sequence[int]) -> str:
    """Return what stands for a list of clients."""
    return hashlib.sha256(spell(list(clients))).hexdigest()
