"""The version of the package, known to every part of it."""

__version__ = "0.2.0"
