"""Any network as the rest sees it: its outputs, its classifier, and FedAlign's tail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedbb._util.names import nearest
from fedbb.errors import RecipeError

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
            f"model {name_of(network)} returns a {kind}; allowed are a tensor of logits (N, C), "
            "fedbb.models.Outputs, and an object or mapping with a tensor `logits`"
        )
    return Outputs(logits.unsqueeze(1) if logits.ndim == 1 else logits)


def name_of(network: nn.Module) -> str:
    """Return the name of a network in messages: that of its class."""
    return type(network).__name__


def set_classifier(network: nn.Module, name: str) -> None:
    """Say which module of a network is its classifier, whose input is the embedding.

    Raises:
        RecipeError: the network has no module of this name.
    """
    names = [found for found, _ in network.named_modules() if found]
    if name not in names:
        raise RecipeError(
            f"model.classifier {name!r} is no module of {name_of(network)}{nearest(name, names)}"
        )
    setattr(network, _CLASSIFIER, name)


def classifier_name(network: nn.Module) -> str | None:
    """Return the name of a network's classifier: as it was set, or its last `nn.Linear`."""
    named = getattr(network, _CLASSIFIER, None)
    if isinstance(named, str):
        return named
    linear = [name for name, part in network.named_modules() if isinstance(part, nn.Linear)]
    return linear[-1] if linear else None


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
