"""The version of the package, known to every part of it."""

__version__ = "0.1.0"
