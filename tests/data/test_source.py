from dataclasses import dataclass
from typing import Literal

import pytest

from fedbb.data.source import NoOptions, Source, read_options
from fedbb.errors import DataError


@dataclass(frozen=True)
class Made:
    """Options made up for these tests."""

    share: float = 0.2
    names: tuple[str, ...] = ()
    policy: Literal["refuse", "skip"] = "refuse"


def read(**options) -> Made:
    return read_options(Made, Source("made", options=options))


def test_what_is_not_said_has_its_default() -> None:
    assert read() == Made()
    assert read(share=1, names=["a", "b"]) == Made(share=1.0, names=("a", "b"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shere": 0.1}, "made data: option 'shere' is unknown; did you mean share"),
        ({"share": "much"}, "made data: option share = 'much'"),
        ({"policy": "ignore"}, "made data: option policy = 'ignore'.*'refuse' or 'skip'"),
        ({"names": ["a", 1]}, r"made data: option names\.2 = 1"),
    ],
)
def test_a_wrong_option_is_named(options, message) -> None:
    with pytest.raises(DataError, match=message):
        read(**options)


def test_a_data_set_without_options_refuses_any() -> None:
    with pytest.raises(DataError, match="'size' is unknown; it takes none"):
        read_options(NoOptions, Source("digits", options={"size": 3}))
