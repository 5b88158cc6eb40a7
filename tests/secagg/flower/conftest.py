"""Tests that need Flower, where it is installed."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("flwr") else ["test_*.py"]


@pytest.fixture
def _unenrolled(federation):
    """Sites that are not enrolled after the test: their nodes serve open runs of other tests."""
    yield
    for roster in federation.folder.path.rglob("roster.json"):
        roster.unlink()
