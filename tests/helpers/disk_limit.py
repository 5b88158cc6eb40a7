"""A disk that is full, for everything that the block writes."""

import contextlib
import resource


@contextlib.contextmanager
def disk_limit(free=0):
    """Let no file of this process grow beyond this many bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
