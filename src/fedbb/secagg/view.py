"""The view of a sum: a digest of everything that a client computes its vector from.

A sum hides single clients only if all of them computed under the same view. A server that sends
other sums, another model or another recipe to all clients but one can make the others add almost
nothing, so that the sum is that one client's vector. Each client therefore derives the keys of its
pairwise masks from the view that it itself received: masks of clients with different views do not
cancel, and their sum is random.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from torch import Tensor

from fedbb.records import ModelState
from fedbb.secagg.cbr import Agreement, Sums, plain_sums
from fedbb.secagg.protocol.canonical import canonical_json
from fedbb.state import digest

_PURPOSE = b"fedbb view 1\0"


def view_digest(
    agreement: Agreement,
    sums: Sums | None = None,
    model: str | None = None,
    state_rounds: Mapping[int, int] | None = None,
    broadcast: Mapping[str, Tensor] | None = None,
) -> str:
    """Return the SHA-256 of a view; run, round and attempt are bound with it by the keys' purpose.

    Args:
        agreement: what this party agreed on, with the digest of the recipe that it received.
        sums: the sums of the statistics that it received; None before.
        model: the `model_digest` of the model that it received; None if the sum needs no model.
        state_rounds: the round of each client's state, as the server sent it.
        broadcast: every other tensor that it received for its computation, by name, such as the
            control variates of a method. Whatever a method sends to clients must be in here.

    Returns:
        64 hexadecimal digits, the same for two parties only if they received the same.
    """
    terms, bounds = agreement.terms, agreement.bounds
    content = {
        "recipe": agreement.recipe,
        "terms": [terms.gamma, terms.floor, terms.bits],
        "bounds": [bounds.max_weight, bounds.max_norm],
        "sums": None if sums is None else plain_sums(sums),
        "model": model,
        "state_rounds": sorted((state_rounds or {}).items()),
        "broadcast": {
            name: digest(ModelState({"": tensor}, {})) for name, tensor in (broadcast or {}).items()
        },
    }
    return hashlib.sha256(_PURPOSE + canonical_json(content)).hexdigest()


def model_digest(state: ModelState) -> str:
    """Return a digest of a model that also tells its parameters from its buffers.

    They are trained and summed in different ways, and come from the server in one message.
    """
    return f"{digest(ModelState(state.params, {}))} {digest(ModelState({}, state.buffers))}"
