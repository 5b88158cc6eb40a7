"""Validation errors name the keys that the user wrote."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from fedbb._util.constraints import STRICT_TABLE, Count
from fedbb._util.validation import explain_validation_error


@dataclass(frozen=True)
class Inner:
    __pydantic_config__: ClassVar = {**STRICT_TABLE, "strict": False}

    number: Count = 1
    rate: float = 0.5


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    parts: list[Inner] = []
    maybe: Inner | None = None


def told(values, record=Outer, **options):
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(record).validate_python(values)
    return explain_validation_error(caught.value, record, **options)


def test_missing_unknown_and_wrong_values_are_each_named():
    said = told({"nam": "a", "maybe": 3})
    assert "name is missing" in said
    assert "nam is unknown; did you mean name? Known: name, parts, maybe" in said
    assert "maybe = 3 is refused: input should be" in said


def test_keys_of_a_dataclass_are_known_too():
    assert told({"numbr": 3}, Inner) == "numbr is unknown; did you mean number? Known: number, rate"
    assert told({"rate": float("nan")}, Inner).startswith("rate = nan is refused")


def test_entries_of_a_list_are_counted_from_one():
    said = told({"name": "a", "parts": [Inner(), 3]}, separator=" ")
    assert said.startswith("parts 2 = 3 is refused")
