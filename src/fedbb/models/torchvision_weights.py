"""Published EfficientNet-B0 weights, under torchvision's names, put into our network."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from torch import Tensor

from fedbb.errors import DataError
from fedbb.models.efficientnet import STAGES, EfficientNetB0

BLOCK_KEY = re.compile(r"stages\.(\d+)\.(\d+)\.(expand|depthwise|excite|project)\.(.+)")
PARTS = ("expand", "depthwise", "excite", "project")
OUTER = {"stem": "features.0", "top": f"features.{len(STAGES) + 1}", "fc": "classifier.1"}
COUNTER = "num_batches_tracked"


def load_torchvision(network: EfficientNetB0, published: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Copy published weights into the network; return the names of what keeps its own start.

    That is the classifier if it has other classes or sits on a projection, and the projection. An
    image of one channel is taken as three equal ones, so the first weights are summed over them.
    """
    own = network.state_dict()
    pairs = {key: torchvision_key(key) for key in own if not key.startswith("projection.")}
    _check_names(set(pairs.values()), set(published))
    classifies_alike = published["classifier.1.weight"].shape == own["fc.weight"].shape
    loaded = {
        key: _fit(key, published[name], own[key])
        for key, name in pairs.items()
        if name in published and (classifies_alike or not key.startswith("fc."))
    }
    network.load_state_dict(own | loaded)
    return tuple(key for key in own if key not in loaded and not key.endswith(COUNTER))


def torchvision_key(key: str) -> str:
    """Return torchvision's name of a tensor of ours.

    >>> torchvision_key("stages.1.0.excite.reduce.bias")
    'features.2.0.block.2.fc1.bias'
    """
    match = BLOCK_KEY.fullmatch(key)
    if match:
        stage, block, part, rest = match.groups()
        has_expansion = STAGES[int(stage)].expansion > 1
        place = PARTS.index(part) - (0 if has_expansion else 1)
        rest = rest.replace("reduce.", "fc1.").replace("restore.", "fc2.")
        return f"features.{int(stage) + 1}.{block}.block.{place}.{rest}"
    layer, rest = key.split(".", 1)
    return f"{OUTER[layer]}.{rest}"


def _check_names(expected: set[str], given: set[str]) -> None:
    missing = [name for name in expected - given if not name.endswith(COUNTER)]
    faults = [*_first(missing, "missing"), *_first(given - expected, "unknown")]
    if faults:
        raise DataError(
            f"these are not the weights of torchvision's efficientnet_b0: {'; '.join(faults)}"
        )


def _first(names: Collection[str], fault: str) -> list[str]:
    return [f"{len(names)} of its names are {fault}, such as {min(names)!r}"] if names else []


def _fit(key: str, published: Tensor, own: Tensor) -> Tensor:
    if key == "stem.0.weight" and own.shape[1] == 1:
        published = published.sum(dim=1, keepdim=True)
    if published.shape != own.shape:
        raise DataError(
            f"{torchvision_key(key)} has shape {tuple(published.shape)}; "
            f"efficientnet_b0 has {tuple(own.shape)} there"
        )
    return published
