"""What becomes of a label that is not known: refused, taken as 0 or 1, or left unknown."""

from __future__ import annotations

import math
from typing import Literal

Policy = Literal["refuse", "zeros", "ones", "ignore"]

REPLACEMENT: dict[str, float] = {"zeros": 0.0, "ones": 1.0, "ignore": math.nan}
"""The value of an unknown label under each policy but "refuse"; NaN counts nowhere."""
