"""The network of a run: built in, of an installed package, in importable code, or an object."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedbb._util.names import nearest
from fedbb._util.plugins import (
    AllowedCode,
    check_code,
    import_code,
    is_code,
    load_plugin,
    plugin_names,
)
from fedbb.data.dataset import Dataset
from fedbb.data.transforms import zero_batch
from fedbb.errors import RecipeError
from fedbb.models.base import name_of, set_classifier
from fedbb.models.efficientnet import EfficientNetB0
from fedbb.models.resnet_cifar import resnet11, resnet56
from fedbb.models.small import MLP, LeNet, SmallCNN, linear
from fedbb.rng import torch_stream

Builder = Callable[..., nn.Module]
"""A network's class, or a function that returns one."""

ModelSource = str | nn.Module | Callable[[], nn.Module]
"""The name of a network, a network, or a function without arguments that returns one."""


def _for_images(name: str, builder: Callable[[int, int, bool], nn.Module]) -> Builder:
    """Return a builder that takes the shape of images, of which only the channels matter."""

    def build(classes: int, shape: Sequence[int], projection: bool = False) -> nn.Module:
        if len(shape) != 3:
            sizes = "×".join(str(length) for length in shape)
            raise RecipeError(
                f"model {name} takes images (channels × height × width), and an input of the data "
                f"is {sizes}; mlp and linear take inputs of any shape"
            )
        return builder(classes, shape[0], projection)

    return build


MODELS: Mapping[str, Builder] = {
    "resnet56": _for_images("resnet56", resnet56),
    "resnet11": _for_images("resnet11", resnet11),
    "small-cnn": _for_images("small-cnn", SmallCNN),
    "efficientnet-b0": _for_images("efficientnet-b0", EfficientNetB0),
    "lenet": LeNet,
    "mlp": MLP,
    "linear": linear,
}
"""Each takes the number of classes, the shape of an input, whether it has MOON's projection head,
and options of its own."""


def build_model(
    name: str,
    classes: int,
    shape: Sequence[int],
    *,
    projection: bool = False,
    options: Mapping[str, Any] | None = None,
    allow_code: AllowedCode = False,
) -> nn.Module:
    """Return a new network.

    Its initial weights come from torch's global generator. For reproducible ones call it inside
    `with torch_stream(seed, ...)`.

    Args:
        name: one of `MODELS`, a network that an installed package registers as `fedbb.models`, or
            "package.module:function".
        classes: the number of classes.
        shape: the shape of an input, channels first.
        projection: whether a built-in network has MOON's projection head.
        options: arguments of the network's builder.
        allow_code: whether "package.module:function" may be imported and called.

    Raises:
        RecipeError: the name or an option is unknown, or running code is not allowed.
    """
    given = dict(options or {})
    if name in MODELS:
        _check_options(name, given)
        return _call(name, MODELS[name], {"projection": projection, **given}, classes, shape)
    if projection:
        raise RecipeError(
            f"model.projection = true adds a head to built-in networks only, not to {name!r}"
        )
    check_name(name)
    if is_code(name):
        check_code("model.name", name, allow_code)
        return _call(name, _import(name), given, classes, shape)
    return _call(name, load_plugin("fedbb.models", name), given, classes, shape)


def check_name(name: str) -> None:
    """Check that a name stands for a network, without any import; RecipeError if it is unknown."""
    if name in MODELS or is_code(name):
        return
    known = [*MODELS, *plugin_names("fedbb.models")]
    if name not in known:
        raise RecipeError(
            f"model.name {name!r} is unknown{nearest(name, known)}, or package.module:function"
        )


def _check_options(name: str, options: Mapping[str, Any]) -> None:
    known = list(inspect.signature(MODELS[name]).parameters)[3:]
    for option in options:
        if option not in known:
            raise RecipeError(
                f"model.options.{option} is unknown to {name}{nearest(option, known)}"
            )


def _import(name: str) -> Builder:
    found = import_code("model.name", name)
    if not callable(found):
        raise RecipeError(f"model.name {name!r} is a {type(found).__name__}, not a function")
    builder: Builder = found
    return builder


def _call(
    name: str, builder: Builder, options: Mapping[str, Any], classes: int, shape: Sequence[int]
) -> nn.Module:
    """Call a builder with its options, and with what it asks for by name of the data."""
    shape = tuple(int(length) for length in shape)
    facts = {"classes": classes, "channels": shape[0] if shape else 1, "shape": shape}
    try:
        takes = set(inspect.signature(builder).parameters)
    except (TypeError, ValueError):  # of a function in C
        takes = set()
    asked = {key: value for key, value in facts.items() if key in takes}
    try:
        network = builder(**{**asked, **options})
    except RecipeError:
        raise
    except Exception as error:
        raise RecipeError(
            f"model {name!r} cannot be built with {dict(options)}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(network, nn.Module):
        raise RecipeError(f"model {name!r} gives a {type(network).__name__}, not an nn.Module")
    return network


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
            f"model is a {type(model).__name__}; allowed: an nn.Module, a function without "
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
