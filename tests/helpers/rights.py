"""Folders that this process may not read, also where it runs as root."""

import contextlib
import ctypes
import os

import pytest

_VERSION = 0x20080522
_OVERRIDE = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: with them root reads what it has no right to."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@contextlib.contextmanager
def denied(*folders, mode=0o000):
    """Take from this process the rights on folders in the block."""
    before = [folder.stat().st_mode for folder in folders]
    for folder in folders:
        folder.chmod(mode)
    try:
        with _without_override() if os.geteuid() == 0 else contextlib.nullcontext():
            yield
    finally:
        for folder, old in zip(folders, before, strict=True):
            folder.chmod(old)


@contextlib.contextmanager
def _without_override():
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "capset"):
        pytest.skip("root can read everything here")
    header, sets = _Header(_VERSION, 0), (_Sets * 2)()
    assert libc.capget(ctypes.byref(header), sets) == 0
    before = sets[0].effective
    sets[0].effective = before & ~_OVERRIDE
    assert libc.capset(ctypes.byref(header), sets) == 0
    try:
        yield
    finally:
        sets[0].effective = before
        assert libc.capset(ctypes.byref(header), sets) == 0
