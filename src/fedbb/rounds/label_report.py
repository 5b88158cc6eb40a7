"""CBR in apps of other frameworks: a client's report on its labels, and its check at the server.

A client reports its number of samples and the dispersion of its labels beside the model it
trained. The functions here know no framework; `fedbb.flower` and `fedbb.nvflare` use them.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbb.aggregation.merging import BySamples, ClientBalanced, renormalize
from fedbb.errors import ReplyError
from fedbb.imbalance import Reading, Values, count_labels
from fedbb.records import ClientInfo, LabelCounts, ModelState, Task
from fedbb.rounds.replies import check_client_info
from fedbb.state import Arrays

SAMPLES = "fedbb-samples"
"""The entry that holds the number of samples a client trains on."""

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
"""Last parts of the names that torch gives to the buffers of normalization layers."""


def dispersion_key(reading: Reading) -> str:
    """Return the name of the dispersion's entry, which includes the reading."""
    return f"fedbb-{reading}"


def describe_labels(
    labels: LabelCounts | Values, classes: int | None, reading: Reading
) -> dict[str, int | float]:
    """Return the two figures that a client reports: its size and the dispersion of its labels.

    Args:
        labels: class numbers (N,), or (N, C) of 0, 1 and NaN for an unknown label, or their counts.
        classes: the number of classes of all clients together; needed with class numbers.
        reading: how the dispersion is defined, see `fedbb.dispersion`.

    Returns:
        The figures by name.

    Raises:
        ValueError: class numbers without `classes`.
    """
    counts = _count(labels, classes)
    spread = ClientBalanced(reading=reading).measure(counts)
    return {SAMPLES: counts.samples, dispersion_key(reading): spread}


def _count(labels: LabelCounts | Values, classes: int | None) -> LabelCounts:
    if isinstance(labels, LabelCounts):
        return labels
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim == 2:
        return count_labels(array, Task.MULTILABEL, array.shape[1])
    if classes is None:
        raise ValueError(
            "report_label_statistics needs classes=…: class numbers alone do not say how many "
            "classes there are"
        )
    return count_labels(array, Task.MULTICLASS, classes)


def take_client_info(
    client: int, entries: MutableMapping[str, Any], reading: Reading, remedy: str
) -> ClientInfo:
    """Remove a client's report from the entries that came with its model, and return it.

    Args:
        client: the client's number.
        entries: what came with the model, such as metrics, which are averaged afterwards.
        reading: the reading of the server's weighting.
        remedy: what a client without a report lacks.

    Raises:
        ReplyError: a missing or impossible figure, or a client without samples.
    """
    spread = dispersion_key(reading)
    for key in (SAMPLES, spread):
        if key not in entries:
            raise ReplyError(f"it sends no {key}; {remedy}, reading {reading}")
    info = check_client_info(client, entries.pop(SAMPLES), entries.pop(spread), measured=True)
    if info.samples == 0:
        raise ReplyError("it has no samples")
    return info


def split_arrays(arrays: Arrays) -> ModelState:
    """Return floating-point arrays as the parameters and buffers of a model, in float64.

    An app sends one list of arrays. Those with the names of `BUFFERS` are taken for buffers and
    the others for parameters, as in a torch state dict; `max_norm` then means what it means in a
    recipe. Integers are left out.
    """
    floats = {
        name: torch.from_numpy(array.astype(np.float64))
        for name, array in arrays.items()
        if array.dtype.kind == "f"
    }
    buffers = {name for name in floats if name.rpartition(".")[2] in BUFFERS}
    return ModelState(
        {name: tensor for name, tensor in floats.items() if name not in buffers},
        {name: tensor for name, tensor in floats.items() if name in buffers},
    )


@dataclass(frozen=True)
class ClientWeight:
    """The weight of a client in a round, beside those that other rules would give it.

    Args:
        client: its number.
        samples: its number of samples.
        dispersion: the dispersion of its labels.
        uniform: its weight if all clients counted equally.
        by_samples: its weight in proportion to its samples (FedAvg).
        cbr: its weight under CBR without a bound.
        weight: the weight that was used: CBR within the bound.
    """

    client: int
    samples: int
    dispersion: float
    uniform: float
    by_samples: float
    cbr: float
    weight: float


def compare_weights(
    infos: Sequence[ClientInfo], weighting: ClientBalanced, max_weight: float = 1.0
) -> list[ClientWeight]:
    """Return the weight of each client, with those of other rules beside it.

    Args:
        infos: what the clients of a round report; at least one.
        weighting: CBR with its settings.
        max_weight: the largest weight of a client.

    Returns:
        A row for each client, in the order of the infos. The weights of each rule sum to one.
    """
    cbr = weighting(infos)
    columns = (
        np.full(len(infos), 1.0 / len(infos)),
        BySamples()(infos),
        renormalize(cbr),
        renormalize(cbr, max_weight),
    )
    return [
        ClientWeight(info.client, info.samples, float(info.dispersion or 0.0), *row)
        for info, row in zip(infos, np.stack(columns, axis=1).tolist(), strict=True)
    ]


def check_limits(quorum: float, max_weight: float, max_norm: float) -> None:
    """Refuse limits of a round that mean nothing.

    Raises:
        ValueError: a limit outside of its range.
    """
    if not 0 <= quorum <= 1:
        raise ValueError(f"quorum must be in [0, 1], not {quorum}")
    if not 0 < max_weight <= 1:
        raise ValueError(f"max_weight must be above 0 and at most 1, not {max_weight}")
    if not max_norm > 0:
        raise ValueError(f"max_norm must be above 0, not {max_norm}")
