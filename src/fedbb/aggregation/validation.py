"""Whether what a client sent can be a trained model at all."""

from __future__ import annotations

import math

from fedbb.aggregation.robust.clipping import change_norm
from fedbb.aggregation.robust.coordinatewise import difference
from fedbb.records import ModelState
from fedbb.state import is_finite


def validate_update(current: ModelState, trained: ModelState, most: float = math.inf) -> str | None:
    """Return why a model cannot count, if so; `most` is how far it may be from the current one."""
    name = difference(current, trained)
    if name is not None:
        return f"its model differs from ours in {name!r}"
    if not is_finite(trained):
        return "its model holds values that are not finite"
    negative = [
        name
        for name, tensor in trained.buffers.items()
        if name.endswith("running_var") and bool((tensor < 0).any())
    ]
    if negative:
        return f"its model has a negative variance in {negative[0]!r}"
    norm = change_norm(current, trained)
    if not math.isfinite(norm):
        return "its model is too far away for the distance to be a number"
    if norm > most:
        return f"its model moved by {norm:.4g}, and {most:.4g} is allowed"
    return None
