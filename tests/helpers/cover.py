"""Products of parameters of which the fast tests run a cover and the slow ones the rest."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def cover(rows: Iterable[Any], columns: Sequence[Any], always: Sequence[Any] = ()) -> list[Any]:
    """Return every row with every column as parameters; those outside a cover are marked slow.

    The cover has each row with the columns of `always` and with one other column, in turns, so
    that each column occurs too if there are as many rows as columns. A row that is a tuple gives
    several parameters.
    """
    others = [column for column in columns if column not in always]
    made = []
    for place, row in enumerate(rows):
        chosen = [*always, *others[place % len(others) :][:1]] if others else list(always)
        first = row if isinstance(row, tuple) else (row,)
        made += [
            pytest.param(*first, column, marks=[] if column in chosen else [pytest.mark.slow])
            for column in columns
        ]
    return made


def few(cases: Iterable[Any], count: int) -> list[Any]:
    """Return all cases as parameters; `count` of the fast ones, evenly spread, are not slow."""
    listed = [case if isinstance(case, type(pytest.param())) else _param(case) for case in cases]
    fast = [place for place, case in enumerate(listed) if not case.marks]
    kept = {fast[turn * len(fast) // count] for turn in range(count)}
    return [
        case if place in kept else case._replace(marks=(pytest.mark.slow,))
        for place, case in enumerate(listed)
    ]


def _param(case: Any) -> Any:
    return pytest.param(*case) if isinstance(case, tuple) else pytest.param(case)
