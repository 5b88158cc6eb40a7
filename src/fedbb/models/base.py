"""Any network as the rest sees it, and the parts that the built-in networks share.

FedAlign runs the last stage of a network on its leading channels only. Nothing here changes a
layer for that: the same parameters are cut at the moment of use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from fedbb._util.names import nearest
from fedbb.errors import RecipeError

MULTIPLE = 8
"""A layer at part of its width keeps a multiple of this number of channels."""

PROJECTED = 256
"""Outputs of MOON's projection head."""

_CLASSIFIER = "_fedbb_classifier"
"""The attribute of a network that names its classifier. Copies and pickles keep it, and it is no
entry of the state dict."""


class Outputs(NamedTuple):
    """What a network may return in place of its logits.

    Attributes:
        logits: (N, C).
        embedding: What the logits are made of, (N, D); MOON contrasts it.
        stages: Feature maps of each stage; FedAlign compares the last two.
    """

    logits: Tensor
    embedding: Tensor | None = None
    stages: tuple[Tensor, ...] = ()


class NetworkModule(nn.Module):
    """An `nn.Module` that returns `Outputs`. No network has to be one.

    A network of two or more stages may offer `tail`, which FedAlign needs.
    """

    if TYPE_CHECKING:

        def __call__(self, images: Tensor) -> Outputs:
            """Run the forward pass."""
            ...

    def tail(self, hidden: Tensor, width: float) -> Tensor:
        """Run the last stage with the leading channels only, a share `width` of them.

        Args:
            hidden: the leading `slim_channels(channels, width)` channels of `stages[-2]`.
            width: above 0, at most 1; at 1 this is the last stage as in the forward pass.
        """
        raise _missing_tail(self, "a method that runs the last stage on fewer channels")


class _HasTail(Protocol):
    def tail(self, hidden: Tensor, width: float) -> Tensor: ...


def run_network(network: nn.Module, inputs: Tensor, *, embed: bool = False) -> Outputs:
    """Run the forward pass of any network.

    Args:
        network: returns logits (N, C) or (N,), `Outputs`, or an object or mapping with `logits`.
        inputs: a batch.
        embed: whether the embedding is needed. A network that does not return it has its
            classifier's input taken instead.

    Returns:
        The logits, and the embedding and the stages where the network has them.

    Raises:
        RecipeError: the network returns something else, or has no classifier that could be found.
    """
    lone = network.training and len(inputs) == 1
    with _single_values(network) if lone else nullcontext():
        if not embed:
            return as_outputs(network(inputs), network)
        with _classifier_inputs(network) as seen:
            outputs = as_outputs(network(inputs), network)
    if outputs.embedding is not None:
        return outputs
    if not seen:
        raise RecipeError(_no_embedding(network))
    return outputs._replace(embedding=seen[-1].flatten(1))


def as_outputs(returned: Any, network: nn.Module) -> Outputs:
    """Return what a network returned as `Outputs`; RecipeError says what is allowed."""
    if isinstance(returned, Outputs):
        return returned
    logits = returned
    if isinstance(returned, Mapping):
        logits = returned.get("logits")
    elif not isinstance(returned, Tensor):
        logits = getattr(returned, "logits", None)
    if not isinstance(logits, Tensor):
        kind = type(returned).__name__
        raise RecipeError(
            f"model {name_of(network)} returns a {kind}; allowed: a tensor of logits (N, C), "
            "fedbb.models.Outputs, and an object or mapping with a tensor `logits`"
        )
    return Outputs(logits.unsqueeze(1) if logits.ndim == 1 else logits)


def name_of(network: nn.Module) -> str:
    """Return the name of a network in messages: that of its class."""
    return type(network).__name__


def norm_names(network: nn.Module) -> tuple[str, ...]:
    """Return the normalization layers that keep running statistics, in the network's order."""
    return tuple(
        name
        for name, part in network.named_modules()
        if isinstance(part, _NormBase) and part.running_mean is not None
    )


def set_classifier(network: nn.Module, name: str) -> None:
    """Say which module of a network is its classifier, whose input is the embedding.

    Args:
        network: the network; it is marked in place.
        name: the module, as in `named_modules`.

    Raises:
        RecipeError: the network has no module of this name.
    """
    names = [found for found, _ in network.named_modules() if found]
    if name not in names:
        raise RecipeError(
            f"model.classifier {name!r} is not a module of {name_of(network)}{nearest(name, names)}"
        )
    setattr(network, _CLASSIFIER, name)


def classifier_name(network: nn.Module) -> str | None:
    """Return the name of a network's classifier: as it was set, or its last `nn.Linear`."""
    named = getattr(network, _CLASSIFIER, None)
    if isinstance(named, str):
        return named
    linear = [name for name, part in network.named_modules() if isinstance(part, nn.Linear)]
    return linear[-1] if linear else None


def linear_classifier(network: nn.Module, classes: int | None = None) -> str:
    """Return the name of a network's classifier, which must be a linear layer with a bias.

    Args:
        network: the network.
        classes: the number of its outputs; None for any.

    Raises:
        RecipeError: it is something else.
    """
    name = classifier_name(network)
    layer = None if name is None else network.get_submodule(name)
    if isinstance(layer, nn.Linear) and layer.bias is not None:  # noqa: SIM102
        if classes is None or layer.out_features == classes:
            return str(name)
    found = "none" if name is None else f"{name!r}, {layer}"
    raise RecipeError(
        "the classifier must be an nn.Linear with a bias and one output for each class; that of "
        f"{name_of(network)} is {found}"
    )


def classifier_parameters(name: str) -> tuple[str, str]:
    """Return the names of a linear classifier's weight and bias in the state of its network."""
    prefix = f"{name}." if name else ""  # the network may be the classifier itself
    return f"{prefix}weight", f"{prefix}bias"


@contextmanager
def _classifier_inputs(network: nn.Module) -> Iterator[list[Tensor]]:
    """Collect what the classifier is given in the block."""
    seen: list[Tensor] = []
    name = classifier_name(network)
    if name is None:
        yield seen
        return

    def take(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = (*args, *kwargs.values())
        seen.extend(value for value in given[:1] if isinstance(value, Tensor))

    hook = network.get_submodule(name).register_forward_pre_hook(take, with_kwargs=True)
    try:
        yield seen
    finally:
        hook.remove()


@contextmanager
def _single_values(network: nn.Module) -> Iterator[None]:
    """Let batch norms train on one value per channel by means of their running statistics.

    One value has no variance, so torch refuses it. A client with one example, or one left over in
    its last batch, is an ordinary client: such a layer works as in evaluation.
    """

    def before(norm: nn.Module, args: tuple[Any, ...]) -> None:
        maps = args[0]
        if norm.running_mean is not None and maps.numel() == maps.shape[1]:
            norm.training = False

    def after(norm: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        norm.training = True

    norms = [part for part in network.modules() if isinstance(part, _BatchNorm) and part.training]
    hooks = [norm.register_forward_pre_hook(before) for norm in norms]
    hooks += [norm.register_forward_hook(after) for norm in norms]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _no_embedding(network: nn.Module) -> str:
    if (name := classifier_name(network)) is not None:
        return (
            f"model {name_of(network)} does not call its classifier {name!r} with a tensor, so "
            "there is no embedding; name another module as model.classifier, or return "
            "fedbb.models.Outputs"
        )
    return (
        f"model {name_of(network)} has no nn.Linear whose input could be the embedding; name its "
        "classifier as model.classifier, or return fedbb.models.Outputs"
    )


def check_tail(network: nn.Module, method: str) -> None:
    """Check that a network has a tail, as FedAlign needs.

    Raises:
        RecipeError: it has not; the message names the method and the network.
    """
    tail = getattr(type(network), "tail", None)
    if tail is None or tail is NetworkModule.tail:
        raise _missing_tail(network, method)


def run_tail(network: nn.Module, hidden: Tensor, width: float) -> Tensor:
    """Run the last stage of a network that has a tail on its leading channels."""
    return cast(_HasTail, network).tail(hidden, width)


def _missing_tail(network: nn.Module, method: str) -> RecipeError:
    return RecipeError(
        f"{method} needs a network of at least two stages that can run its last stage again "
        f"(`tail`), and {name_of(network)} is none; of the built-in networks all have one but mlp "
        "and linear"
    )


class BatchNorm(nn.BatchNorm2d):
    """`nn.BatchNorm2d`, which trains on a single value by means of its running statistics.

    One value has no variance, so torch refuses it. Here a client of one small image is an ordinary
    client: it is normalized as in evaluation, and the running statistics stay as they are.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalize (N, C, H, W) per channel."""
        if not (self.training and _is_one_value_per_channel(input)):
            return super().forward(input)
        mean, variance = self.running_mean, self.running_var
        return F.batch_norm(input, mean, variance, self.weight, self.bias, eps=self.eps)


def _is_one_value_per_channel(maps: Tensor) -> bool:
    return maps.numel() == maps.shape[1]


def slim_channels(channels: int, width: float) -> int:
    """Return how many channels a narrow layer keeps: about a share `width`, a multiple of 8.

    >>> [slim_channels(channels, 0.25) for channels in (32, 64, 128, 256)]
    [8, 16, 32, 64]
    """
    if not 0 < width <= 1:
        raise ValueError(f"width {width} is not a share; above 0, at most 1 is allowed")
    exact = channels * width
    rounded = max(1, int(exact + MULTIPLE / 2) // MULTIPLE * MULTIPLE)
    if rounded < 0.9 * exact:
        rounded += MULTIPLE
    return min(rounded, channels)


def leading(maps: Tensor, width: float) -> Tensor:
    """Return the leading channels of maps (N, C, H, W)."""
    return maps[:, : slim_channels(maps.shape[1], width)]


def run_slim(maps: Tensor, width: float, *layers: nn.Module) -> Tensor:
    """Run convolutions, normalizations and sequences of them, one after another, at this width.

    A layer without channels of its own runs as it is. At width 1 every layer does.
    """
    for layer in layers:
        maps = layer(maps) if width == 1 else _run(layer, maps, width)
    return maps


def _run(layer: nn.Module, maps: Tensor, width: float) -> Tensor:
    if isinstance(layer, nn.Sequential):
        return run_slim(maps, width, *layer)
    if isinstance(layer, nn.Conv2d):
        return _convolve(layer, maps, width)
    if isinstance(layer, nn.BatchNorm2d):
        return _normalize(layer, maps, width)
    result: Tensor = layer(maps)
    return result


def _convolve(layer: nn.Conv2d, maps: Tensor, width: float) -> Tensor:
    """Convolve by the leading part of the weights; a depthwise layer keeps one group a channel."""
    outputs = slim_channels(layer.out_channels, width)
    is_depthwise = layer.groups > 1
    inputs = 1 if is_depthwise else slim_channels(layer.in_channels, width)
    return F.conv2d(
        maps,
        layer.weight[:outputs, :inputs],
        None if layer.bias is None else layer.bias[:outputs],
        layer.stride,
        layer.padding,
        groups=outputs if is_depthwise else 1,
    )


def _normalize(layer: nn.BatchNorm2d, maps: Tensor, width: float) -> Tensor:
    """Normalize by the batch's own statistics: the running ones belong to the full width."""
    channels = slim_channels(layer.num_features, width)
    weight, bias = layer.weight[:channels], layer.bias[:channels]
    if maps.numel() > channels:
        return F.batch_norm(maps, None, None, weight, bias, training=True, eps=layer.eps)
    # One value has no variance; the running statistics of the same channels are the nearest.
    assert layer.running_mean is not None
    assert layer.running_var is not None
    mean, variance = layer.running_mean[:channels], layer.running_var[:channels]
    return F.batch_norm(maps, mean, variance, weight, bias, eps=layer.eps)


class Projection(nn.Module):
    """Linear to the same width, rectifier, linear to 256."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, PROJECTED)

    def forward(self, embedding: Tensor) -> Tensor:
        """Return what MOON contrasts, of shape (N, 256)."""
        result: Tensor = self.outer(F.relu(self.inner(embedding)))
        return result


def head(width: int, classes: int, projection: bool) -> tuple[nn.Module, nn.Linear]:
    """Return what an embedding of this width goes through, and the classifier on top of it.

    Without projection the first does nothing, holds nothing and draws no random numbers.
    """
    if projection:
        return Projection(width), nn.Linear(PROJECTED, classes)
    return nn.Identity(), nn.Linear(width, classes)
