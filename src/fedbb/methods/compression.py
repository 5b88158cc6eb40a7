"""Methods whose clients send a part of their change in a compressed form."""

from __future__ import annotations

from fedbb.compression import Buffers, Coding, Positions, Scope, Sparse, Values
from fedbb.methods.record import Method
from fedbb.personal import KeptEntries


def fedopt_sca(
    *,
    density: float = Sparse.density,
    values: Values = Sparse.values,
    positions: Positions = Sparse.positions,
    scope: Scope = Sparse.scope,
    feedback: bool = Sparse.feedback,
    coding: Coding = Sparse.coding,
    buffers: Buffers = Sparse.buffers,
) -> Method:
    """FedOpt of Asad et al. (2020): FedAvg with sparse changes.

    Clients send one magnitude at a few positions of each tensor and keep the rest for later rounds.
    Not the server optimizers that others call FedOpt.

    Args:
        density: the share of the numbers of a change that are sent.
        values: "binary", "ternary" or "exact".
        positions: the "largest" numbers, or "drawn" positions that all clients share.
        scope: density and magnitudes of each "tensor", or of the "whole" model.
        feedback: whether a client keeps what it does not send for its next change.
        coding: positions as "plain" integers, or in a "golomb" code of the gaps between them.
        buffers: running statistics are "sent" whole, or every client keeps its "own"; there is no
            model for all then.
    """
    return Method(
        "FedOpt-SCA",
        personal=KeptEntries("buffers") if buffers == "own" else None,
        compression=Sparse(density, values, positions, scope, feedback, coding, buffers),
    )
