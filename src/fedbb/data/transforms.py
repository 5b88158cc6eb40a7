"""Inputs of networks: memory layout of images, statistics, augmentation and normalization."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from fedbb.data.mapped import Inputs, chunk_rows
from fedbb.errors import DataError
from fedbb.records import FloatArray, IntArray

Layout = Literal["auto", "channels-first", "channels-last"]
Padding = Literal["zeros", "reflect"]
PADDINGS: tuple[Padding, ...] = get_args(Padding)

_CHANNELS = (1, 3)
_CHUNK = 512
_NUMBERS = 2**25
"""Numbers that are converted to float64 at once; only very large inputs make chunks shorter."""


@dataclass(frozen=True)
class Augmentation:
    """Random changes to training inputs.

    Attributes:
        crop: pixels of padding before a random crop to the old size; 0 for none.
        flip: whether half of the images are mirrored.
        function: a function of your own, called with the inputs of a batch as they are stored,
            (B, …), and one seed for each of them, int64 (B,); it returns inputs of the same shape
            and type. A result that depends on an input and its seed alone is the same for every
            size of the batch and number of workers.
        padding: what the padding of a crop holds: "zeros", or "reflect" for the pixels inside the
            border in reverse order, without the border's own.
    """

    crop: int = 0
    flip: bool = False
    function: Callable[[Tensor, Tensor], Tensor] | None = None
    padding: Padding = "zeros"

    @property
    def moves(self) -> bool:
        """Whether it crops or flips, which needs images."""
        return self.crop > 0 or self.flip


@dataclass(frozen=True, eq=False)
class Draws:
    """How each sample is changed: where in the padded image its crop begins, and if it is mirrored.

    Entry i belongs to sample i of the client, so a change depends neither on the size of the batch
    nor on the order of samples. `top` and `left` run from 0 to twice the padding; `seeds` are for
    a function of the user's.
    """

    augmentation: Augmentation
    top: IntArray
    left: IntArray
    mirrored: npt.NDArray[np.bool_]
    seeds: IntArray

    def take(self, samples: IntArray) -> Draws:
        """Return the changes of these samples, in this order."""
        return Draws(
            self.augmentation,
            self.top[samples],
            self.left[samples],
            self.mirrored[samples],
            self.seeds[samples],
        )


def draw(augmentation: Augmentation, samples: int, rng: np.random.Generator) -> Draws:
    """Draw the changes of all samples for one epoch."""
    top, left = rng.integers(0, 2 * augmentation.crop + 1, size=(2, samples))
    mirrored = (rng.random(samples) < 0.5) & augmentation.flip
    seeds = rng.integers(0, 2**63, size=samples)
    return Draws(augmentation, top, left, mirrored, seeds)


def apply(inputs: Tensor, draws: Draws) -> Tensor:
    """Change the inputs of a batch, each as its draw says.

    Inputs go in as they are stored and are normalized after.
    """
    if draws.augmentation.moves:
        inputs = _move(inputs, draws)
    function = draws.augmentation.function
    if function is None:
        return inputs
    changed = function(inputs, torch.from_numpy(draws.seeds))
    if not isinstance(changed, Tensor):
        raise DataError(f"the augmentation returns a {type(changed).__name__}, not a tensor")
    if changed.shape != inputs.shape or changed.dtype != inputs.dtype:
        raise DataError(
            f"the augmentation returns {changed.dtype} of shape {tuple(changed.shape)} for inputs "
            f"of {inputs.dtype} of shape {tuple(inputs.shape)}; both must stay"
        )
    return changed


def _move(images: Tensor, draws: Draws) -> Tensor:
    """Crop and mirror images (B, channels, height, width), which are padded first."""
    number, channels, height, width = images.shape
    padded = F.pad(images, (_margin(draws.augmentation),) * 4).flatten(2)
    spots = _spots(draws, height, width).to(images.device)
    # One gather over flat pixels takes a third of the time of indexing by row and column.
    chosen = padded.gather(2, spots[:, None].expand(number, channels, height * width))
    return chosen.view(number, channels, height, width)


def _spots(draws: Draws, height: int, width: int) -> Tensor:
    """Return which pixel of the flat padded image each pixel shows, (B, height · width)."""
    row, column = torch.arange(height), torch.arange(width)
    mirrored = torch.from_numpy(draws.mirrored)[:, None]
    rows = torch.from_numpy(draws.top)[:, None] + row
    columns = torch.from_numpy(draws.left)[:, None] + torch.where(
        mirrored, width - 1 - column, column
    )
    if draws.augmentation.padding == "reflect":
        rows, columns = (
            _reflected(spot - draws.augmentation.crop, size)
            for spot, size in ((rows, height), (columns, width))
        )
    spots = rows[:, :, None] * (width + 2 * _margin(draws.augmentation)) + columns[:, None, :]
    return spots.flatten(1)


def _margin(augmentation: Augmentation) -> int:
    """Return the zeros on each side of an image; reflected pixels are taken from the image."""
    return augmentation.crop if augmentation.padding == "zeros" else 0


def _reflected(spots: Tensor, size: int) -> Tensor:
    """Return the pixel, 0 to size − 1, that a spot up to size − 1 outside of the image shows."""
    return size - 1 - (size - 1 - spots.abs()).abs()


def normalize(
    inputs: Tensor | npt.NDArray[Any], mean: tuple[float, ...], std: tuple[float, ...]
) -> Tensor:
    """Return (inputs − mean) / std per channel as float32; uint8 is scaled to [0, 1] first.

    Without a mean nothing is subtracted or divided. Whole numbers other than uint8 are token ids
    and stay as they are.
    """
    if not isinstance(inputs, Tensor):
        inputs = torch.from_numpy(np.array(inputs))
    if inputs.dtype in (torch.int32, torch.int64):
        return inputs
    values = inputs.to(torch.float32, copy=True)
    if inputs.dtype == torch.uint8:
        values.div_(255)
    if not mean:
        return values
    one_per_channel = (-1, *(1,) * (values.ndim - 2))
    center = values.new_tensor(mean).view(one_per_channel)
    spread = values.new_tensor(std).view(one_per_channel)
    return values.sub_(center).div_(spread)


def zero_batch(inputs: Inputs) -> Tensor:
    """Return one input of zeros in the shape and type in which a network gets these inputs."""
    return normalize(np.zeros((1, *inputs.shape[1:]), inputs.dtype), (), ())


def channel_statistics(inputs: Inputs) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and population standard deviation per channel (the second axis of inputs).

    uint8 pixels are taken as 0 to 1. A channel that never changes gets the spread 1, so that
    dividing by it leaves the channel finite.
    """
    pixels = inputs.size / inputs.shape[1]
    others = (0, *range(2, inputs.ndim))
    mean = sum((chunk.sum(axis=others) for chunk in chunks(inputs)), np.zeros(1)) / pixels
    middle = mean.reshape(-1, *(1,) * (inputs.ndim - 2))
    centered = ((chunk - middle) ** 2 for chunk in chunks(inputs))
    std = np.sqrt(sum((chunk.sum(axis=others) for chunk in centered), np.zeros(1)) / pixels)
    std[std < 1e-12] = 1.0
    return tuple(mean.tolist()), tuple(std.tolist())


def chunks(inputs: Inputs) -> Iterator[FloatArray]:
    """Yield float64 pieces, so that a large set is never held in float64 as a whole."""
    scale = 255.0 if inputs.dtype == np.uint8 else 1.0
    step = chunk_rows(inputs, _NUMBERS, _CHUNK)
    for start in range(0, len(inputs), step):
        yield np.asarray(inputs[start : start + step]).astype(np.float64) / scale


def as_images(array: npt.NDArray[Any], layout: Layout, where: str) -> npt.NDArray[Any]:
    """Return (N, channels, height, width) from (N, height, width) or either order of channels."""
    if array.ndim == 3:
        return as_pixels(array[:, None], where)
    if array.ndim != 4:
        raise DataError(
            f"{where} has shape {array.shape}; allowed: (N, height, width), "
            "(N, channels, height, width) and (N, height, width, channels)"
        )
    if _is_channels_last(array.shape, layout, where):
        array = array.transpose(0, 3, 1, 2)
    return as_pixels(array, where)


def _is_channels_last(shape: tuple[int, ...], layout: Layout, where: str) -> bool:
    """Find the order by the axis of size 1 or 3; if both or neither fit, the user must say."""
    first, last = shape[1] in _CHANNELS, shape[3] in _CHANNELS
    if layout != "auto":
        return layout == "channels-last"
    if first == last:
        raise DataError(
            f"{where} has shape {shape}, which leaves open where the channels are; "
            "set the layout to channels-first or channels-last"
        )
    return last


def as_pixels(array: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
    """Return the array as contiguous uint8 (whole numbers of 0 to 255) or float32 (the rest)."""
    kind = array.dtype.kind
    if kind == "b":
        array = array.astype(np.uint8) * np.uint8(255)
    elif kind in "iu" and array.dtype != np.uint8:
        array = _whole_numbers(array, where)
    elif kind == "f" and array.dtype != np.float32:
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
    elif kind not in "iuf":
        raise DataError(f"{where} holds {array.dtype}; images must be numbers")
    # An array that is mapped from disk stays one.
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _whole_numbers(array: npt.NDArray[Any], where: str) -> npt.NDArray[np.uint8]:
    if array.size and (array.min() < 0 or array.max() > 255):
        raise DataError(
            f"{where} holds {array.dtype} from {array.min()} to {array.max()}; whole numbers must "
            "be 0 to 255, so give other ranges as float32"
        )
    return array.astype(np.uint8)
