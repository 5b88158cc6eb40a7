"""The table that shows how the counts lead to the weights of a loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class ClassRow:
    """One class: its counts, effective numbers, α and the weights of its cases."""

    name: str
    positives: float
    negatives: float
    effective_positives: float
    effective_negatives: float
    alpha_positive: float
    alpha_negative: float
    positive_weight: float
    negative_weight: float


HEADINGS = ("class", "A", "B", "E(A)", "E(B)", "α⁺", "α⁻", "weight⁺", "weight⁻")


@dataclass(frozen=True)
class Explanation:
    """Rows by class; prints as an aligned table."""

    rows: tuple[ClassRow, ...]

    def __iter__(self) -> Iterator[ClassRow]:
        return iter(self.rows)

    def __str__(self) -> str:
        table = [HEADINGS, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[column]) for line in table) for column in range(len(HEADINGS))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in table
        )


def _cells(row: ClassRow) -> tuple[str, ...]:
    name, *numbers = (getattr(row, field.name) for field in fields(row))
    counts, effective, weights = numbers[:2], numbers[2:4], numbers[4:]
    return (
        name,
        *(f"{count:g}" for count in counts),
        *(f"{number:.2f}" for number in effective),
        *(f"{weight:.5f}" for weight in weights),
    )
