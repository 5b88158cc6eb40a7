"""Small model states and updates made of plain numbers."""

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedbb.records import ClientUpdate, ModelState

moderate = st.floats(-1000, 1000, width=32)


def state(values, variance=1.0, batches=0):
    """Return a model with two parameters and batch norm's buffers."""
    values = np.asarray(values, dtype=np.float32)
    return ModelState(
        {"weight": torch.tensor(values), "bias": torch.tensor(values[:1])},
        {
            "norm.running_mean": torch.tensor(values / 2),
            "norm.running_var": torch.tensor([variance], dtype=torch.float32),
            "norm.num_batches_tracked": torch.tensor(batches),
        },
    )


def update(client, values, **buffers):
    return ClientUpdate(client, state(values, **buffers), 3, 3.0, 0.5)


def updates(models):
    return [update(client, values) for client, values in enumerate(models)]


def floats(model):
    """Return all that is not an integer in one vector."""
    tensors = (*model.params.values(), *model.buffers.values())
    parts = [tensor.double().reshape(-1) for tensor in tensors if tensor.is_floating_point()]
    return torch.cat(parts).numpy()


def models(number, elements=moderate, size=3):
    """Draw the parameters of `number` clients, which may be a strategy."""
    numbers = number if isinstance(number, st.SearchStrategy) else st.just(number)
    drawn = numbers.flatmap(
        lambda clients: hnp.arrays(np.float32, (clients, size), elements=elements)
    )
    return drawn.map(list)
