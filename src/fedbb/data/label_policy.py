"""Labels of 0 and 1 as text: which values are certain, and what −1 and blank ones mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

Policy = Literal["refuse", "zeros", "ones", "ignore"]
"""What becomes of a label that is not known: refused, taken as 0 or 1, or left unknown."""

REPLACEMENT: Mapping[str, float] = {"zeros": 0.0, "ones": 1.0, "ignore": math.nan}
"""The value of an unknown label under each policy but "refuse"; NaN counts nowhere."""

CERTAIN: Mapping[str, float] = {"0": 0.0, "0.0": 0.0, "1": 1.0, "1.0": 1.0}
UNCERTAIN = ("-1", "-1.0")


def label_values(uncertain: Policy, blank: Policy) -> dict[str, float]:
    """Return the value of every text that a column of 0 and 1 may hold under these policies."""
    values = dict(CERTAIN)
    for texts, policy in ((UNCERTAIN, uncertain), (("",), blank)):
        if policy != "refuse":
            values |= dict.fromkeys(texts, REPLACEMENT[policy])
    return values


def explain_label(text: str, option: str = "the option ") -> str:
    """Return why a text is refused; `option` precedes the name of the policy to change."""
    for shown, texts, name in ((text, UNCERTAIN, "uncertain"), ("blank", ("",), "blank")):
        if text in texts:
            return f"the label is {shown}; set {option}{name} to zeros, ones or ignore"
    return f"the label is {text!r}; allowed: 0 and 1, and −1 or blank by option"
