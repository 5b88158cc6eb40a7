"""What the differences say, in plain words and whoever wins."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from fedbb.report.tables import Difference
from fedbb.report.wording import difference_text, metric_title, size_text


class Outcome(StrEnum):
    """How a method stands beside another."""

    AHEAD = "ahead"
    BEHIND = "behind"
    TIE = "tie"
    ONE_SEED = "one seed"
    UNKNOWN = "not comparable"


def outcome(difference: Difference) -> Outcome:
    """Call a tie when the seeds disagree, or their mean is smaller than its standard deviation."""
    number, spread = difference.spread.number, difference.spread
    if number == 0:
        return Outcome.UNKNOWN
    if number == 1:
        return Outcome.ONE_SEED
    if abs(spread.mean) < spread.deviation:
        return Outcome.TIE
    if difference.ahead == number:
        return Outcome.AHEAD
    return Outcome.BEHIND if difference.behind == number else Outcome.TIE


def verdicts(differences: Sequence[Difference]) -> list[str]:
    """Return a sentence or two for each method from its differences by one metric, control last."""
    controls = {difference.against for difference in differences if difference.is_control}
    methods = dict.fromkeys(difference.method for difference in differences)
    return [
        verdict([difference for difference in differences if difference.method == method])
        for method in sorted(methods, key=lambda method: method in controls)
    ]


def verdict(differences: Sequence[Difference]) -> str:
    """Return the words for one method beside its rivals, FedAvg before the control."""
    outcomes = [outcome(difference) for difference in differences]
    text = f"{differences[0].method} is {_clause(differences[0], unit=True)}"
    for before, now, difference in zip(outcomes, outcomes[1:], differences[1:], strict=False):
        text += f", {'and' if now is before else 'but'} {_clause(difference, unit=False)}"
    return f"{text}. {_lesson(differences, outcomes)}".strip()


def _clause(difference: Difference, *, unit: bool) -> str:
    spread, seeds = difference.spread, difference.spread.number
    rival = ("the control " if difference.is_control else "") + difference.against
    points = "points of " + metric_title(difference.metric) if unit else "points"
    match outcome(difference):
        case Outcome.AHEAD | Outcome.BEHIND as side:
            preposition = "ahead of" if side is Outcome.AHEAD else "behind"
            return (
                f"{preposition} {rival} by {size_text(spread)} {points} ({seeds} of {seeds} seeds)"
            )
        case Outcome.TIE:
            count = f"higher on {difference.ahead} of {seeds} seeds"
            return f"not clearly apart from {rival} ({difference_text(spread)} {points}; {count})"
        case Outcome.ONE_SEED:
            return (
                f"{difference_text(spread)} {points} from {rival} on one seed, which proves nothing"
            )
        case Outcome.UNKNOWN:
            return f"not comparable with {rival}: no seed has a score of both"


def _lesson(differences: Sequence[Difference], outcomes: Sequence[Outcome]) -> str:
    """Return what the control adds, where a method is ahead of FedAvg itself."""
    controls = [
        side
        for difference, side in zip(differences, outcomes, strict=True)
        if difference.is_control
    ]
    if len(controls) != 1 or outcomes[0] is not Outcome.AHEAD:
        return ""
    match controls[0]:
        case Outcome.AHEAD:
            return "The size of its steps alone does not explain the gain."
        case Outcome.TIE:
            return "Whether more than the size of its steps is at work, these runs do not tell."
        case Outcome.BEHIND:
            return "Steps of the same size without any re-weighting gain more."
        case _:
            return ""
