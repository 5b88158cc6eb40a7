"""The one retry loop: try something until it succeeds, for a limited number of attempts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TypeVar

Found = TypeVar("Found")
Failed = TypeVar("Failed", bound=Exception)


def retry(
    action: Callable[[int], Found],
    on: type[Failed],
    *,
    attempts: int | None = None,
    failed: Callable[[Failed, int], None] = lambda error, attempt: None,
) -> Found:
    """Return what the first successful attempt returns.

    >>> retry(lambda attempt: 6 // (attempt - 2), ZeroDivisionError, attempts=2)
    -6

    Args:
        action: called with the number of the attempt, from 1.
        on: the exception after which another attempt follows; others are raised at once.
        attempts: the largest number of attempts; None for no limit.
        failed: called with the exception and the number of each failed attempt but the last.

    Returns:
        The result of the first attempt that does not fail.

    Raises:
        Failed: the exception of the last attempt.
    """
    for attempt in count(1):
        try:
            return action(attempt)
        except on as error:
            if attempt == attempts:
                raise
            failed(error, attempt)
    raise AssertionError("count does not end")
