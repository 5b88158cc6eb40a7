"""NIH ChestX-ray14: chest films with up to 14 findings each, as published or as arrays."""

from __future__ import annotations

from fedbb.data.dataset import Dataset
from fedbb.data.options import read_options
from fedbb.data.sets.nih_cxr14_arrays import load_arrays
from fedbb.data.sets.nih_cxr14_films import load_films
from fedbb.data.sets.nih_cxr14_options import NihOptions
from fedbb.data.source import Source
from fedbb.errors import DataError


def load(source: Source) -> Dataset:
    """Return the data set; a film without a finding is a row of zeros, and `patient` is kept."""
    options = read_options(NihOptions, source)
    if source.path is None:
        raise DataError(
            f"{source.name} data needs a path: Data_Entry_2017.csv, its folder, or an .npz file"
        )
    if options.size is not None and options.size < 1:
        raise DataError(f"{source.name} data: size is {options.size}; it must be at least 1")
    load_part = load_arrays if source.path.suffix == ".npz" else load_films
    return load_part(source, source.path, options)
