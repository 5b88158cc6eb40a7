"""What a party asks to see of the others, in their own handwriting, before it goes on."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fedbb.errors import RefusedError
from fedbb.secagg.masked.attempt import Pair
from fedbb.secagg.primitives.keys import KEY
from fedbb.secagg.protocol.canonical import a_flag
from fedbb.secagg.protocol.messages import Letter, Occasion, Part, unseal
from fedbb.secagg.protocol.roster import Roster


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
    parts: Sequence[Part], stage: str, occasion: Occasion, roster: Roster, survivors: Sequence[int]
) -> tuple[int, bool]:
    """Return how many survivors signed, and whether all of them gave the vector they gave before.

    Refuse a signature under another list of survivors, or by somebody who is none.
    """
    signers, same = set(), True
    for part in parts:
        agreed = unseal(part, roster, stage, None, occasion)
        if agreed.sender not in survivors:
            raise RefusedError(f"client {agreed.sender} is no survivor and has no say in it")
        if stage == "agree" and agreed.clients("survivors") != tuple(survivors):
            raise RefusedError(f"client {agreed.sender} has agreed to another list of survivors")
        same &= a_flag(agreed.facts.get("same"), "whether a vector is the same")
        signers.add(agreed.sender)
    return len(signers), same and signers == set(survivors)


def check_clients(client: int, clients: Sequence[int], among: Collection[int], least: int) -> None:
    """Refuse a group that is too small, has strangers in it, or not this client."""
    strangers = set(clients) - set(among)
    if strangers:
        raise RefusedError(f"client {min(strangers)} does not belong to those who are asked")
    if client not in clients:
        raise RefusedError(f"client {client} is asked about a sum it is not in")
    if len(clients) < least:
        raise RefusedError(f"{len(clients)} clients are too few for a sum; {least} are needed")
