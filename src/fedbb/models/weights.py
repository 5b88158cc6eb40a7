"""Reading weights from a file into a network: safetensors, or a state dict saved by torch."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedbb.errors import DataError
from fedbb.models.base import classifier_name, name_of
from fedbb.models.efficientnet import STAGES, EfficientNetB0
from fedbb.state import BUFFERS, PARAMS

_COUNTER = "num_batches_tracked"
_BLOCK_KEY = re.compile(r"stages\.(\d+)\.(\d+)\.(expand|depthwise|excite|project)\.(.+)")
_PARTS = ("expand", "depthwise", "excite", "project")
_OUTER = {"stem": "features.0", "top": f"features.{len(STAGES) + 1}", "fc": "classifier.1"}


def load_weights(network: nn.Module, path: str) -> None:
    """Put the weights of a file into a network, in place.

    The classifier may have another number of classes there; it keeps its own start then, with a
    RuntimeWarning. EfficientNet-B0 takes torchvision's names too.

    Args:
        network: the network.
        path: a .safetensors file, or a .pt or .pth file of a state dict, from which no code runs.

    Raises:
        DataError: the file cannot be read, or its names or shapes are not the network's.
    """
    given = read_weights(path)
    if isinstance(network, EfficientNetB0) and "features.0.0.weight" in given:
        given = _from_torchvision(network, given)
    own = network.state_dict()
    _check_names(network, own, given, path)
    fitting = {name: tensor for name, tensor in given.items() if own[name].shape == tensor.shape}
    others = sorted(given.keys() - fitting.keys())
    head = classifier_name(network)
    wrong = [name for name in others if head is None or name.rpartition(".")[0] != head]
    if wrong:
        shapes = [f"{n} is {_sizes(given[n])}, not {_sizes(own[n])}" for n in wrong[:3]]
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise DataError(
            f"model.weights {path} does not fit {name_of(network)}: {'; '.join(shapes)}{more}"
        )
    if others:
        warnings.warn(
            f"model.weights {path} has a classifier of another shape ({', '.join(others)}); it "
            "keeps its own start",
            RuntimeWarning,
            stacklevel=2,
        )
    network.load_state_dict(fitting, strict=False)


def read_weights(path: str) -> dict[str, Tensor]:
    """Return the tensors of a file by name, without any prefix that a tool put before all names.

    Raises:
        DataError: the file is missing, damaged, or holds something else than tensors.
    """
    try:
        if path.endswith(".safetensors"):
            from safetensors.torch import load_file

            found: Any = load_file(path)
        else:
            with warnings.catch_warnings():
                # Of a plain pickle torch warns that it may fail; the error below says more.
                warnings.filterwarnings("ignore", "Detected pickle protocol")
                found = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise DataError(f"model.weights {path} does not exist") from error
    except pickle.UnpicklingError as error:
        raise DataError(
            f"model.weights {path} holds pickled objects, which could run code, or is damaged; "
            "save the state dict alone: torch.save(network.state_dict(), path)"
        ) from error
    except Exception as error:
        line = str(error).partition("\n")[0]
        raise DataError(f"model.weights {path} cannot be read: {line}") from error
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]
    if not isinstance(found, Mapping) or not all(isinstance(v, Tensor) for v in found.values()):
        raise DataError(f"model.weights {path} holds no state dict: tensors by name")
    if any(not bool(torch.isfinite(tensor).all()) for tensor in found.values()):
        raise DataError(f"model.weights {path} holds values that are not finite")
    return _without_prefix(dict(found))


def _without_prefix(found: dict[str, Tensor]) -> dict[str, Tensor]:
    # Of nn.DataParallel, and of the run folders of this package.
    for prefixes in (("module.",), (PARAMS, BUFFERS)):
        if found and all(name.startswith(prefixes) for name in found):
            return {name.partition(".")[2]: tensor for name, tensor in found.items()}
    return found


def _check_names(
    network: nn.Module, own: Mapping[str, Tensor], given: Mapping[str, Tensor], path: str
) -> None:
    held = {own[name].data_ptr() for name in given if name in own}
    missing = [
        name
        for name, tensor in own.items()
        # A shared parameter may stand in a file once.
        if name not in given and not name.endswith(_COUNTER) and tensor.data_ptr() not in held
    ]
    faults = [*_first(missing, "missing"), *_first(given.keys() - own.keys(), "unknown to it")]
    if faults:
        raise DataError(
            f"model.weights {path} does not fit {name_of(network)}: {'; '.join(faults)}"
        )


def _first(names: Collection[str], fault: str) -> list[str]:
    if not names:
        return []
    shown = ", ".join(sorted(names)[:3])
    return [f"{len(names)} name{'s are' if len(names) > 1 else ' is'} {fault}, such as {shown}"]


def _sizes(tensor: Tensor) -> str:
    return "×".join(str(length) for length in tensor.shape) or "one number"


def _from_torchvision(
    network: EfficientNetB0, published: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return torchvision's tensors under the names of our EfficientNet-B0.

    An image of one channel is taken as three equal ones, so the first weights are summed over them.
    """
    own = network.state_dict()
    ours = {torchvision_key(key): key for key in own if not key.startswith("projection.")}
    renamed = {ours.get(name, name): tensor for name, tensor in published.items()}
    stem = renamed.get("stem.0.weight")
    if stem is not None and own["stem.0.weight"].shape[1] == 1:
        renamed["stem.0.weight"] = stem.sum(dim=1, keepdim=True)
    for key in own:
        if key.startswith("projection."):
            renamed[key] = own[key]
    return renamed


def torchvision_key(key: str) -> str:
    """Return torchvision's name of a tensor of our EfficientNet-B0.

    >>> torchvision_key("stages.1.0.excite.reduce.bias")
    'features.2.0.block.2.fc1.bias'
    """
    match = _BLOCK_KEY.fullmatch(key)
    if match:
        stage, block, part, rest = match.groups()
        has_expansion = STAGES[int(stage)].expansion > 1
        place = _PARTS.index(part) - (0 if has_expansion else 1)
        rest = rest.replace("reduce.", "fc1.").replace("restore.", "fc2.")
        return f"features.{int(stage) + 1}.{block}.block.{place}.{rest}"
    layer, rest = key.split(".", 1)
    return f"{_OUTER[layer]}.{rest}"
