"""Image files as arrays of one form; what cannot be read is refused by name."""

from __future__ import annotations

import struct
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedbb.errors import DataError

_FAULTS = (
    OSError,
    SyntaxError,
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    MemoryError,
    OverflowError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)


@dataclass(frozen=True)
class Form:
    """What images are brought to: 1 or 3 channels; (height, width), or None to keep the size."""

    channels: int
    size: tuple[int, int] | None


def read_picture(path: Path, form: Form) -> npt.NDArray[np.uint8]:
    """Return an image file as (channels, height, width); DataError says why it cannot be read."""
    try:
        with warnings.catch_warnings():
            # Odd metadata, of which Pillow warns, does no harm to the pixels.
            warnings.simplefilter("ignore", UserWarning)
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                return _pixels(image, form)
    except _FAULTS as error:
        raise DataError(f"image {path} cannot be read: {error}") from error


def _pixels(image: Image.Image, form: Form) -> npt.NDArray[np.uint8]:
    plain = _eight_bit(image).convert("L" if form.channels == 1 else "RGB")
    if form.size is not None and plain.size != form.size[::-1]:
        plain = plain.resize(form.size[::-1], Image.Resampling.BILINEAR)
    pixels = np.array(plain, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _eight_bit(image: Image.Image) -> Image.Image:
    """Bring 16-bit grey to 8 bits by its full range; Pillow itself would cut off at 255."""
    if image.mode == "F":
        raise ValueError("it holds fractions, whose range nothing tells")
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 0xFFFF:
        raise ValueError(f"its pixels run from {values.min()} to {values.max()}, beyond 16 bits")
    return Image.fromarray(np.rint(values / 257).astype(np.uint8))
