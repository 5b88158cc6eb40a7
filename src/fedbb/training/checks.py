"""What is checked before a run begins, so that no round ends in a traceback."""

from __future__ import annotations

import torch

from fedbb.data.dataset import Dataset
from fedbb.errors import RecipeError
from fedbb.methods import Method
from fedbb.models.base import NetworkModule, check_tail
from fedbb.models.blocks import leading

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
        raise RecipeError(f"local.device {name!r} is unknown; allowed are {DEVICES}") from error
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
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise RecipeError(
            f"local.device {name!r} cannot be used here: {_first_line(error)}; "
            f"allowed are {DEVICES}"
        ) from error


def check_network(network: NetworkModule, dataset: Dataset, method: Method | None = None) -> None:
    """Check that a network takes the images of a data set, and has what a method needs.

    One image of zeros is passed through it; its weights stay as they are.

    Args:
        network: the network that the clients are to train.
        dataset: its images and classes.
        method: the method that the clients are to follow; None: any that needs nothing special.

    Raises:
        RecipeError: the images are too small or otherwise unfit, the logits are not one for each
            class, or the method runs the last stage again (FedAlign) and the network cannot.
    """
    name = type(network).__name__
    shape = tuple(dataset.train.inputs.shape[1:])
    follows = method.name if method is not None else ""
    width = method.needs.tail_width if method is not None else None
    if width is not None:
        check_tail(network, follows)
    device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad():
            outputs = network(torch.zeros(1, *shape, device=device))
            if width is not None and len(outputs.stages) >= 2:
                network.tail(leading(outputs.stages[-2], width), width)
    except (RuntimeError, ValueError, IndexError) as error:
        sizes = "×".join(str(size) for size in shape)
        raise RecipeError(
            f"model {name} cannot take the {sizes} images (channels × height × width) of "
            f"{dataset.name}: {_first_line(error)}; larger images, or a model for small ones, "
            "may help"
        ) from error
    finally:
        network.train(was_training)
    if width is not None and len(outputs.stages) < 2:
        raise RecipeError(
            f"{follows} compares the last two stages of a network, and {name} returns "
            f"{len(outputs.stages)} in Outputs.stages"
        )
    expected = (1, len(dataset.classes))
    if tuple(outputs.logits.shape) != expected:
        raise RecipeError(
            f"model {name} gives logits of shape {tuple(outputs.logits.shape)} for one image of "
            f"{dataset.name}, not {expected}: one for each class"
        )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
