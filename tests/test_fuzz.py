"""Any bytes are read or refused by an error of fedbb; `make fuzz` tries longer."""

import time
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbb.errors import FedbbError
from helpers.fuzz_readers import all_readers

pytest.importorskip("flwr", reason="flwr is not installed")

READERS = all_readers()
SECONDS, MEGABYTES = 5, 64
"""What one reading may take. A message of some hundred bytes takes milliseconds and kilobytes."""

pieces = st.binary(max_size=8) | st.sampled_from(
    [
        b"\x00" * 8,
        b"\xff" * 8,
        b"[" * 300,
        b'{"a":' * 50,
        b"9" * 400,
        b"-1",
        b"1e999",
        b"NaN",
        b"\n",
    ]
)
edits = st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 12), pieces), max_size=3)


def edit(content, changes):
    """Return the content with some pieces replaced."""
    for place, removed, piece in changes:
        begin = place % (len(content) + 1)
        content = content[:begin] + piece + content[begin + removed :]
    return content


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("name", READERS)
def test_the_example_is_read(name, folder):
    reader = READERS[name]
    assert reader(reader.content(), folder) is not None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
@settings(max_examples=15)
@given(data=st.data())
def test_any_bytes_are_read_or_refused(name, folder, data):
    reader = READERS[name]
    content = data.draw(st.builds(edit, st.just(reader.content()), edits) | st.binary(max_size=60))
    began = time.monotonic()
    tracemalloc.start()
    try:
        with suppress(FedbbError):
            reader(content, folder)
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.monotonic() - began < SECONDS
    assert grown < MEGABYTES * 2**20
