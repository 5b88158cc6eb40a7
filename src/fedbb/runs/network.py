"""The network a run begins with."""

from __future__ import annotations

import torch

from fedbb.data.dataset import Dataset
from fedbb.errors import RecipeError
from fedbb.models.base import NetworkModule
from fedbb.models.registry import build_model
from fedbb.rng import torch_stream
from fedbb.training.config import LocalConfig


def make_network(
    name: str, dataset: Dataset, plan: LocalConfig, *, seed: int, projection: bool
) -> NetworkModule:
    """Return a network for a data set, placed as the plan says, its start drawn from the seed."""
    with torch_stream(seed, "model"):
        model = build_model(name, len(dataset.classes), dataset.channels, projection=projection)
    try:
        model = model.to(plan.device)
    except (RuntimeError, AssertionError) as error:
        raise RecipeError(f"local.device {plan.device!r} cannot be used: {error}") from error
    if plan.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model
