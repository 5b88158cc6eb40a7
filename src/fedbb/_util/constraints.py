"""Types of settings with the values they allow, and how strictly a recipe's tables are read.

The configuration records of the package are plain dataclasses. Their annotations tell what is
allowed, and the reader of recipes checks it; nothing here loads the library that does so.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypedDict

from annotated_types import Ge, Gt, Le, Lt

MOST: Final = 2**53
"""Larger integers are not exact in float64, in which shares of a number are computed."""

Count = Annotated[int, Ge(1), Le(MOST)]
Seed = Annotated[int, Ge(0), Lt(2**32)]
LARGEST: Final = 3e38
"""Networks compute in float32, whose range ends here."""

Positive = Annotated[float, Gt(0), Le(LARGEST)]
NotNegative = Annotated[float, Ge(0), Le(LARGEST)]
Fraction = Annotated[float, Gt(0), Le(1)]


class TableConfig(TypedDict):
    """The part of pydantic's configuration that a record read from a table needs."""

    strict: bool
    extra: Literal["forbid"]
    allow_inf_nan: bool


STRICT_TABLE: Final[TableConfig] = {"strict": True, "extra": "forbid", "allow_inf_nan": False}
