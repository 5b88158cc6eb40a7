"""Image files decoded to arrays of one format, many in parallel.

An unreadable image is refused by name, or skipped if the user chose so.
"""

from __future__ import annotations

import os
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from fedbb._util.files import explain_error
from fedbb.data.download import Progress
from fedbb.data.images.archive import Archive
from fedbb.errors import DataError
from fedbb.records import IntArray

IMAGE_FORMATS: Mapping[str, tuple[str, ...]] = {
    "PNG": (".png",),
    "JPEG": (".jpg", ".jpeg"),
    "BMP": (".bmp",),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
}
"""The formats that image files may have, with their endings; Pillow's other readers stay shut."""

Unreadable = Literal["refuse", "skip"]
Size = int | tuple[int, int] | None
"""Height and width, one number for both, or None to keep them."""

Pixels = npt.NDArray[np.uint8]

FAULTS = (
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
_NAMED = 5
_BATCH = 64


@dataclass(frozen=True)
class ImageFormat:
    """The format images are converted to: 1 or 3 channels; (height, width), or None to keep it.

    Both ways of scaling take all pixels that a new one covers into account; "box" takes their mean.
    """

    channels: int
    size: tuple[int, int] | None
    scaling: Literal["bilinear", "box"] = "bilinear"

    def decode(self, content: Path | bytes, name: Path) -> Pixels:
        """Return an image file, or the content of one, in this format."""
        return decode_image(content, name, self)


class Decoder(Protocol):
    """A format that image files are converted to; a dataclass, whose fields are a cache key."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def decode(self, content: Path | bytes, name: Path) -> Pixels:
        """Return an image file, or the content of one, as (channels, height, width)."""
        ...


@dataclass(frozen=True)
class ImageSource:
    """An archive of images, the format to convert them to, and the policy for unreadable ones."""

    archive: Archive
    format: Decoder
    unreadable: Unreadable = "refuse"


@dataclass(frozen=True)
class Request:
    """Images to decode by name.

    `place` returns, for messages, where the user named the image of a row. `progress` is called
    with the number of images that are done and the number of all.
    """

    source: ImageSource
    names: tuple[str, ...]
    place: Callable[[int], str] | None = None
    progress: Progress | None = None


@dataclass(frozen=True, eq=False)
class DecodedImages:
    """Images (N, channels, height, width), the rows they belong to, and names of those skipped."""

    images: Pixels
    rows: IntArray
    skipped: tuple[str, ...]

    def notes(self) -> tuple[str, ...]:
        """Return the message about skipped images, for the log of a run."""
        if not self.skipped:
            return ()
        more = ", …" if len(self.skipped) > _NAMED else ""
        named = ", ".join(self.skipped[:_NAMED])
        return (f"{len(self.skipped)} unreadable images skipped: {named}{more}",)


def decode_all(request: Request) -> DecodedImages:
    """Decode all images into memory."""
    skipped: list[int] = []
    found = dict(decode_images(request, skipped))
    rows = sorted(found)
    names = tuple(request.names[row] for row in sorted(skipped))
    return DecodedImages(np.stack([found[row] for row in rows]), np.array(rows, np.int64), names)


def decode_images(request: Request, skipped: list[int]) -> Iterator[tuple[int, Pixels]]:
    """Yield (row, image) in the order of storage; rows that are skipped are added to the list.

    DataError names the first image that is refused, or says that none can be read.
    """
    shape: tuple[int, ...] | None = None
    for done, (row, outcome) in enumerate(_outcomes(request), start=1):
        if shape is not None and isinstance(outcome, np.ndarray) and outcome.shape != shape:
            outcome = _misfit(
                request.source.archive.path / request.names[row], outcome.shape, shape
            )
        if isinstance(outcome, DataError):
            _refuse_or_skip(request, row, outcome, skipped)
        else:
            shape = outcome.shape
            yield row, outcome
        if request.progress is not None and (done % _BATCH == 0 or done == len(request.names)):
            request.progress(done, len(request.names))
    if shape is None:
        raise DataError(
            f"{request.source.archive.path}: none of its {len(request.names)} images can be read"
        )


def _outcomes(request: Request) -> Iterator[tuple[int, Pixels | DataError]]:
    """Yield each row with its image, or with what is wrong with it."""
    archive = request.source.archive
    contents = archive.contents(request.names)
    missing = set(range(len(request.names)))
    # Pillow releases Python's lock while it decodes, so threads run in parallel. Processes were
    # slower when measured, and need a main module that can be imported, unlike a user's script.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        while batch := list(islice(contents, _BATCH)):
            with tolerance():
                outcomes = list(pool.map(partial(_attempt, request), batch))
            rows = [row for row, _ in batch]
            missing.difference_update(rows)
            yield from zip(rows, outcomes, strict=True)
    for row in sorted(missing):
        yield row, DataError(f"image {request.names[row]} is not in {archive.path}")


def _attempt(request: Request, item: tuple[int, Path | bytes]) -> Pixels | DataError:
    row, content = item
    source = request.source
    try:
        return source.format.decode(content, source.archive.path / request.names[row])
    except DataError as error:
        return error


def _refuse_or_skip(request: Request, row: int, error: DataError, skipped: list[int]) -> None:
    if request.source.unreadable == "skip":
        skipped.append(row)
        return
    prefix = f"{request.place(row)}: " if request.place is not None else ""
    raise DataError(f"{prefix}{error}") from error


def _misfit(name: Path, shape: tuple[int, ...], first: tuple[int, ...]) -> DataError:
    return DataError(
        f"image {name} has {shape[1]} × {shape[2]} pixels, the first one {first[1]} × {first[2]}; "
        "set the option size to scale all to one size"
    )


@contextmanager
def tolerance() -> Iterator[None]:
    """Let Pillow ignore odd metadata, which does not change pixels, but not huge images.

    Warning filters belong to the whole process, so threads that decode share one such block.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def decode_image(content: Path | bytes, name: Path, wanted: ImageFormat) -> Pixels:
    """Return an image file, or the content of one, as (channels, height, width)."""
    try:
        source = BytesIO(content) if isinstance(content, bytes) else content
        with Image.open(source, formats=tuple(IMAGE_FORMATS)) as image:
            refuse_frames(image)
            return convert_image(image, wanted)
    except FAULTS as error:
        # Pillow would name a buffer in memory, which helps nobody.
        is_buffer = isinstance(content, bytes) and isinstance(error, UnidentifiedImageError)
        reason = "it is not an image" if is_buffer else explain_error(error)
        raise DataError(f"image {name} cannot be read: {reason}") from error


def refuse_frames(image: Image.Image) -> None:
    """Raise ValueError if a file holds several images; a photo may hold a preview of itself."""
    number = getattr(image, "n_frames", 1)
    if number > 1 and image.format not in ("JPEG", "MPO"):
        raise ValueError(f"it has {number} frames, and an image is one; extract a frame first")


def resize(images: Pixels, wanted: ImageFormat) -> Pixels:
    """Return images (N, 1, height, width) in another format."""
    with tolerance():
        return np.stack([convert_image(Image.fromarray(image[0]), wanted) for image in images])


def resize_arrays(images: npt.NDArray[Any], size: tuple[int, int], where: str) -> npt.NDArray[Any]:
    """Return images (N, channels, height, width) of pixels or fractions in another size."""
    if images.ndim != 4 or images.dtype not in (np.uint8, np.float32):
        raise DataError(
            f"{where} holds {images.dtype} of shape {images.shape[1:]}; size scales images "
            "(channels, height, width)"
        )
    if images.shape[2:] == size:
        return images
    scaled = np.empty((*images.shape[:2], *size), images.dtype)
    for place in np.ndindex(*images.shape[:2]):
        band = Image.fromarray(images[place])
        scaled[place] = np.asarray(band.resize(size[::-1], Image.Resampling.BILINEAR))
    return scaled


def as_size(size: Size, name: str) -> tuple[int, int] | None:
    """Return an option `size` as height and width; DataError if one of them is below 1."""
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise DataError(f"{name} data: size is {size}; height and width are at least 1")
    return height, width


def convert_image(image: Image.Image, wanted: ImageFormat) -> Pixels:
    """Return an image of Pillow in another format."""
    plain = _eight_bit(image).convert("L" if wanted.channels == 1 else "RGB")
    if wanted.size is not None and plain.size != wanted.size[::-1]:
        plain = plain.resize(wanted.size[::-1], Image.Resampling[wanted.scaling.upper()])
    pixels = np.array(plain, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _eight_bit(image: Image.Image) -> Image.Image:
    """Scale 16-bit grey to 8 bits by its full range; Pillow itself would cut off at 255."""
    if image.mode == "F":
        raise ValueError("it holds fractions, whose range is unknown")
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 0xFFFF:
        raise ValueError(f"its pixels run from {values.min()} to {values.max()}, beyond 16 bits")
    return Image.fromarray(np.rint(values / 257).astype(np.uint8))
