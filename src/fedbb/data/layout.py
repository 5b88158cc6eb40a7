"""Foreign arrays as images of ours: channels first, uint8 or float32."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedbb.errors import DataError

Layout = Literal["auto", "channels-first", "channels-last"]

_CHANNELS = (1, 3)


def as_images(array: npt.NDArray[Any], layout: Layout, where: str) -> npt.NDArray[Any]:
    """Return (N, channels, height, width) from (N, height, width) or either order of channels."""
    if array.ndim == 3:
        return as_pixels(array[:, None], where)
    if array.ndim != 4:
        raise DataError(
            f"{where} has shape {array.shape}; allowed are (N, height, width), "
            "(N, channels, height, width) and (N, height, width, channels)"
        )
    if _is_channels_last(array.shape, layout, where):
        array = array.transpose(0, 3, 1, 2)
    return as_pixels(array, where)


def _is_channels_last(shape: tuple[int, ...], layout: Layout, where: str) -> bool:
    """Tell the order by the axis of size 1 or 3; where both or neither fit, the user must say."""
    first, last = shape[1] in _CHANNELS, shape[3] in _CHANNELS
    if layout != "auto":
        return layout == "channels-last"
    if first == last:
        raise DataError(
            f"{where} has shape {shape}, which does not tell where the channels are; "
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
    return np.ascontiguousarray(array)


def _whole_numbers(array: npt.NDArray[Any], where: str) -> npt.NDArray[np.uint8]:
    if array.size and (array.min() < 0 or array.max() > 255):
        raise DataError(
            f"{where} holds {array.dtype} from {array.min()} to {array.max()}; whole numbers must "
            "be 0 to 255, so give other ranges as float32"
        )
    return array.astype(np.uint8)
