"""What is checked before a run begins, so that no round ends in a traceback."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from fedbb.aggregation.server_step import ServerStep
from fedbb.data.dataset import Dataset
from fedbb.data.mapped import value_range
from fedbb.data.transforms import zero_batch
from fedbb.errors import RecipeError
from fedbb.losses.base import check_loss
from fedbb.methods import Method
from fedbb.models.base import (
    Outputs,
    check_tail,
    leading,
    linear_classifier,
    name_of,
    run_network,
    run_tail,
)
from fedbb.penalties.base import Needs
from fedbb.records import ModelFacts, ModelState
from fedbb.state import find_difference, snapshot
from fedbb.statistics import statistic_shapes

DEVICES = "cpu, cuda, cuda:0, cuda:1, …, or another device that this torch can compute on"


def check_device(name: str) -> None:
    """Check that torch can compute on a device of this machine.

    Args:
        name: the device as `local.device` names it, such as "cpu" or "cuda:1".

    Raises:
        RecipeError: the name is unknown, or there is no such device here.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise RecipeError(f"local.device {name!r} is unknown; allowed: {DEVICES}") from error
    if device.type == "cuda":
        # Without a tensor: its CUDA context would take memory of the card for the whole run.
        if not torch.cuda.is_available():
            raise RecipeError(
                f"local.device {name!r} cannot be used: torch finds no CUDA device here; "
                'write local.device = "cpu"'
            )
        number = torch.cuda.device_count()
        if device.index is not None and device.index >= number:
            raise RecipeError(
                f"local.device {name!r} cannot be used: the CUDA devices here are "
                f"cuda:0 to cuda:{number - 1}"
            )
        return
    try:
        torch.zeros(1, device=device).cpu()  # "meta" makes tensors that hold no numbers
    except (RuntimeError, AssertionError, ImportError) as error:
        raise RecipeError(
            f"local.device {name!r} cannot be used here: {_first_line(error)}; allowed: {DEVICES}"
        ) from error


def check_network(network: nn.Module, dataset: Dataset, method: Method | None = None) -> None:
    """Check that a network takes the inputs of a data set, and that a method can train it.

    One input of zeros is passed through it; its weights stay as they are. A loss of the user's own
    is computed on two made-up examples.

    Args:
        network: the network that the clients are to train.
        dataset: its inputs and classes.
        method: the method that the clients are to follow; None: any that needs nothing special.

    Raises:
        RecipeError: the inputs are too small or otherwise unfit, the logits are not one for each
            class, nothing would be trained, the loss cannot be computed, or the network lacks what
            the method needs: stages and a tail (FedAlign), an embedding (MOON).
    """
    name = name_of(network)
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise RecipeError(f"model {name} has no parameter that training could change")
    needs = method.needs if method is not None else Needs()
    follows = method.name if method is not None else ""
    if needs.tail_width is not None:
        check_tail(network, follows)
    outputs = _try_network(network, dataset, needs, follows)
    if needs.tail_width is not None and len(outputs.stages) < 2:
        raise RecipeError(
            f"{follows} compares the last two stages of a network, and {name} returns "
            f"{len(outputs.stages)} in Outputs.stages"
        )
    if needs.projection and not (outputs.embedding is not None and outputs.embedding.requires_grad):
        raise RecipeError(
            f"{follows} has no effect on model {name}: no trained parameter comes before its "
            "classifier, so the embedding never changes"
        )
    if needs.linear_classifier:
        _check_linear(network, outputs, follows)
    embedding = outputs.embedding
    width = embedding.shape[1] if needs.linear_classifier and embedding is not None else None
    expected = (1, len(dataset.classes))
    if tuple(outputs.logits.shape) != expected:
        raise RecipeError(
            f"model {name} gives logits of shape {tuple(outputs.logits.shape)} for one example of "
            f"{dataset.name}, not {expected}: one for each class"
        )
    if method is not None:
        check_loss(method.loss, len(dataset.classes), dataset.task)
        check_personal(method, network)
        _check_sampling(method, len(dataset.classes))
        for step in method.server:
            _check_step(step, network, len(dataset.classes), width, follows)


def _check_step(
    step: ServerStep, network: nn.Module, classes: int, width: int | None, follows: str
) -> None:
    try:
        step.check(classes, width)
        step.check_network(network)
    except ValueError as error:
        raise RecipeError(f"{follows}: {error}") from error


def _check_sampling(method: Method, classes: int) -> None:
    try:
        method.sampling.check(classes)
    except ValueError as error:
        raise RecipeError(f"{method.name}: {error}") from error


def check_statistics(method: Method, networks: Sequence[nn.Module], dataset: Dataset) -> None:
    """Check that no statistic has the form of a model where clients have different networks.

    Raises:
        RecipeError: one does; the message names it.
    """
    facts = ModelFacts(dataset.task, len(dataset.classes), None)
    for statistic in method.statistics:
        try:
            plain = statistic_shapes((statistic,), ModelState({}, {}), facts)
            forms = [statistic_shapes((statistic,), snapshot(one), facts) for one in networks]
            differs = any(find_difference(plain, form) is not None for form in forms)
        except (KeyError, TypeError, ValueError):
            differs = True
        if differs:
            raise RecipeError(
                f"model.by_client gives clients different networks, and {type(statistic).__name__} "
                f"of {method.name} has the form of a model"
            )


def check_personal(method: Method, network: nn.Module) -> None:
    """Check that the part of a network that a method leaves with clients is there.

    Raises:
        RecipeError: it is not, or nothing else would be shared.
    """
    if method.personal is None:
        return
    try:
        method.personal.check(network)
    except ValueError as error:
        raise RecipeError(f"{method.name}: {error}") from error


def _check_linear(network: nn.Module, outputs: Outputs, follows: str) -> None:
    """Check that the logits are those of a linear classifier on the embedding."""
    try:
        layer = network.get_submodule(linear_classifier(network, outputs.logits.shape[1]))
    except RecipeError as error:
        raise RecipeError(f"{follows}: {error}") from error
    embedding = outputs.embedding
    assert embedding is not None  # asked for
    if embedding.shape[1] == layer.in_features:
        with torch.no_grad():
            if torch.allclose(layer(embedding), outputs.logits, rtol=1e-3, atol=1e-4):
                return
    raise RecipeError(
        f"{follows} needs a network whose logits are its classifier's of the embedding, and those "
        f"of {name_of(network)} are not"
    )


def _try_network(network: nn.Module, dataset: Dataset, needs: Needs, follows: str) -> Outputs:
    """Return what a network makes of one input; RecipeError if it cannot take it."""
    inputs = dataset.train.inputs
    device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
    trial, what = zero_batch(inputs), "images" if inputs.ndim == 4 else "inputs"
    if inputs.dtype.kind == "i" and len(inputs):
        # An embedding that is too small would fail in the middle of a round.
        least, most = value_range(inputs)
        trial.fill_(most).view(-1)[0] = least
        what = f"token ids from {least} to {most}"
    modes = {part: part.training for part in network.modules()}
    network.eval()
    try:
        with torch.set_grad_enabled(needs.projection):
            embed = needs.embedding or needs.linear_classifier
            outputs = run_network(network, trial.to(device), embed=embed)
            if needs.tail_width is not None and len(outputs.stages) >= 2:
                run_tail(network, leading(outputs.stages[-2], needs.tail_width), needs.tail_width)
    except RecipeError as error:
        asks = needs.embedding or needs.linear_classifier
        raise RecipeError(f"{follows}: {error}" if asks else str(error)) from error
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        sizes = "×".join(str(size) for size in inputs.shape[1:])
        hint = "; larger ones, or another model, may help" if what == "images" else ""
        if inputs.dtype.kind == "i" and not isinstance(error, IndexError):
            hint = "; whole numbers are token ids of an nn.Embedding, so give features as floats"
        form = " (channels × height × width)" if what == "images" else ""
        raise RecipeError(
            f"model {name_of(network)} cannot take the {sizes} {what}{form} of {dataset.name}: "
            f"{_first_line(error)}{hint}"
        ) from error
    finally:
        for part, mode in modes.items():
            part.training = mode
    return outputs


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
