"""A federation of three real sites for the tests that carry the mark `flower`."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("flwr") else ["test_*.py"]


@pytest.fixture(scope="session")
def federation(tmp_path_factory):
    """A SuperLink and three nodes on this machine, with TLS and node keys; leaves no process."""
    from fedbb.flower.admin import processes
    from fedbb.flower.admin.local import LocalFederation

    with LocalFederation(tmp_path_factory.mktemp("flower") / "federation", 3) as running:
        yield running
        mark = running.mark
    assert processes.find_marked(mark) == []
