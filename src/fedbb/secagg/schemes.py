"""The schemes of secure aggregation by the name that a recipe gives them: `masked` and `bfv`."""

from __future__ import annotations

from fedbb.secagg.client_secrets import RosterKeys
from fedbb.secagg.masked.client import MaskedSumClient
from fedbb.secagg.masked.server import MaskedSumServer
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.protocol.replay_guard import Journal
from fedbb.secagg.protocol.roster import Roster
from fedbb.secagg.protocol.secure_aggregation import SecureAggregation, SecureAggregationClient

MASKED = "masked"
"""The scheme of every sum but the statistics, for which a recipe may choose `bfv`."""


def sum_server(scheme: str, keys: RosterKeys) -> SecureAggregation:
    """Return the server's side of a scheme."""
    if scheme == MASKED:
        return MaskedSumServer(keys.roster, keys.identity)
    # BFV needs an extra of its own.
    from fedbb.secagg.bfv.server import BfvSumServer

    return BfvSumServer(keys.roster, keys.identity)


def sum_client(
    scheme: str, client: int, identity: Identity, roster: Roster, journal: Journal, run: str
) -> SecureAggregationClient:
    """Return the client's side of a scheme, in one run."""
    if scheme == MASKED:
        return MaskedSumClient(client, identity, roster, journal, run)
    from fedbb.secagg.bfv.client import BfvSumClient

    return BfvSumClient(client, identity, roster, journal, run)
