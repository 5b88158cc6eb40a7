"""Image files as arrays of one form; what cannot be read is refused by name."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

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
    """What images are brought to: 1 or 3 channels; (height, width), or None to keep the size.

    Bilinear scaling looks at all pixels that a new one covers, as box scaling does; the latter
    takes their plain mean.
    """

    channels: int
    size: tuple[int, int] | None
    scaling: Literal["bilinear", "box"] = "bilinear"


@contextmanager
def tolerance() -> Iterator[None]:
    """Let Pillow pass over odd metadata, which does no harm to pixels, but not over huge images.

    Filters of warnings are the whole process's, so threads that decode share one such block.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def decode_picture(content: Path | bytes, name: Path, form: Form) -> npt.NDArray[np.uint8]:
    """Return an image file, or what was in one, as (channels, height, width)."""
    try:
        with Image.open(BytesIO(content) if isinstance(content, bytes) else content) as image:
            return _pixels(image, form)
    except _FAULTS as error:
        # Pillow would name a buffer in memory, which tells nobody anything.
        is_buffer = isinstance(content, bytes) and isinstance(error, UnidentifiedImageError)
        reason = "it is no image" if is_buffer else error
        raise DataError(f"image {name} cannot be read: {reason}") from error


def resize(images: npt.NDArray[np.uint8], form: Form) -> npt.NDArray[np.uint8]:
    """Return images (N, 1, height, width) in another form."""
    with tolerance():
        return np.stack([_pixels(Image.fromarray(image[0]), form) for image in images])


def _pixels(image: Image.Image, form: Form) -> npt.NDArray[np.uint8]:
    plain = _eight_bit(image).convert("L" if form.channels == 1 else "RGB")
    if form.size is not None and plain.size != form.size[::-1]:
        plain = plain.resize(form.size[::-1], Image.Resampling[form.scaling.upper()])
    pixels = np.array(plain, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


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
