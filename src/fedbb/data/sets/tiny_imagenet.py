"""Tiny-ImageNet: color images of 64 × 64 pixels, from its folder or an archive of it."""

from __future__ import annotations

from dataclasses import dataclass

from fedbb.data.dataset import Augmentation, Dataset
from fedbb.data.images.archive import open_bundle
from fedbb.data.images.decode import Form
from fedbb.data.images.loader import Unreadable
from fedbb.data.images.named_images import Reading, read_parts
from fedbb.data.options import read_options
from fedbb.data.sets.tiny_imagenet_archive import stored_archive
from fedbb.data.sets.tiny_imagenet_layout import list_images
from fedbb.data.source import Source
from fedbb.errors import DataError


@dataclass(frozen=True)
class TinyImageNetOptions:
    """`size` is height and width to scale to, by the mean of the pixels covered; None keeps 64."""

    size: int | None = None
    unreadable: Unreadable = "refuse"


def load(source: Source) -> Dataset:
    """Return the data set; `val`, whose labels are public, is its test part."""
    options = read_options(TinyImageNetOptions, source)
    if options.size is not None and options.size < 1:
        raise DataError(f"{source.name} data: size is {options.size}; it must be at least 1")
    bundle = open_bundle(source.path or stored_archive(source))
    size = None if options.size is None else (options.size, options.size)
    reading = Reading(bundle, Form(3, size, "box"), options.unreadable)
    return read_parts(list_images(bundle), reading, source, Augmentation(crop=4, flip=True))
