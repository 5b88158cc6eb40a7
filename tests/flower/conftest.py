"""One federation of three real sites for all tests that carry the mark `flower`."""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("flwr") else ["test_*.py"]


@pytest.fixture(scope="session")
def federation(tmp_path_factory):
    """A SuperLink and three nodes on this machine, with TLS and node keys; leaves no process."""
    from fedbb.flower.admin import processes
    from fedbb.flower.admin.local import LocalFederation

    folder = tmp_path_factory.mktemp("flower") / "federation"
    with LocalFederation(folder, 3, node_config=flower_place) as running:
        yield running
        mark = running.mark
    assert processes.find_marked(mark) == []


def flower_place(number):
    """What Flower's own examples are told of a node, beside what ours are."""
    return {"partition-id": number, "num-partitions": 3}
