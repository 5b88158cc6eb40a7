"""From what a user names or hands over to the network that a run begins with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedbb._util.plugins import AllowedCode
from fedbb.data.dataset import Dataset
from fedbb.data.transforms import zero_batch
from fedbb.errors import RecipeError
from fedbb.models.base import name_of, set_classifier
from fedbb.models.registry import build_model
from fedbb.rng import torch_stream

ModelSource = str | nn.Module | Callable[[], nn.Module]
"""The name of a network, a network, or a function without arguments that returns one."""


def resolve_model(
    model: ModelSource,
    dataset: Dataset,
    *,
    seed: int,
    projection: bool = False,
    options: Mapping[str, Any] | None = None,
    allow_code: AllowedCode = False,
) -> nn.Module:
    """Return a new network for a data set, on the CPU; equal seeds give equal initial weights.

    Args:
        model: a name, as `build_model` takes it; a module, which is copied with its weights; or a
            function without arguments that returns one.
        dataset: gives the number of classes and the shape of inputs.
        seed: of the initial weights.
        projection: whether a built-in network has MOON's projection head; no effect on others.
        options: arguments of the builder that a name stands for.
        allow_code: whether a name of the form "package.module:function" may run.

    Raises:
        RecipeError: the model is unknown, cannot be built, or is something else.
    """
    shape = dataset.train.inputs.shape[1:]
    with torch_stream(seed, "model"):
        if isinstance(model, str):
            network = build_model(
                model,
                len(dataset.classes),
                shape,
                projection=projection,
                options=options,
                allow_code=allow_code,
            )
        else:
            network = _own(model)
        materialize(network, zero_batch(dataset.train.inputs))
    return network


def _own(model: nn.Module | Callable[[], nn.Module]) -> nn.Module:
    if isinstance(model, nn.Module):
        return copy.deepcopy(model)
    if not callable(model):
        raise RecipeError(
            f"model is a {type(model).__name__}; allowed are an nn.Module, a function without "
            "arguments that returns one, and the name of a network"
        )
    network = model()
    if not isinstance(network, nn.Module):
        raise RecipeError(
            f"the function given as model returns a {type(network).__name__}, not an nn.Module"
        )
    return network


def materialize(network: nn.Module, inputs: Tensor) -> None:
    """Let the lazy layers of a network, if any, take their shapes from a batch, in place.

    Raises:
        RecipeError: the network cannot take the batch.
    """
    if not any(is_lazy(parameter) for parameter in network.parameters()):
        return
    mode = network.training
    network.eval()  # so that batch norm counts nothing
    try:
        with torch.no_grad():
            network(inputs)
    except Exception as error:
        sizes = "×".join(str(length) for length in inputs.shape[1:])
        raise RecipeError(
            f"model {name_of(network)} cannot take inputs of {sizes}: {error}"
        ) from error
    network.train(mode)


def finish_model(
    network: nn.Module, *, freeze: Iterable[str] = (), classifier: str | None = None
) -> None:
    """Freeze parts of a network and name its classifier, in place.

    Args:
        network: the network.
        freeze: patterns of the names of parameters that are not trained, as in "features.*".
        classifier: the name of the module whose input is the embedding.

    Raises:
        RecipeError: a pattern matches no parameter, or the network has no such module.
    """
    parameters = dict(network.named_parameters(remove_duplicate=False))
    for pattern in freeze:
        found = [name for name in parameters if fnmatchcase(name, pattern)]
        if not found:
            raise RecipeError(
                f"model.freeze {pattern!r} matches no parameter of {name_of(network)}; its "
                f"parameters are {', '.join(list(parameters)[:8])}, …"
            )
        for name in found:
            parameters[name].requires_grad_(False)
    if classifier is not None:
        set_classifier(network, classifier)
