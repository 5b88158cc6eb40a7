import numpy as np
import pytest

from fedbb.partition.partition import group_owners
from fedbb.runs.folder import RunFolder
from fedbb.runs.metadata import is_same_partition, save_partition_digest


def division(owners, labels=(0, 1, 0, 1, 2, 2)):
    return group_owners(np.array(owners), 3, np.array(labels), {"kind": "made up"})


@pytest.mark.parametrize("hidden", [True, False])
def test_a_division_is_known_again_whole_or_hidden(tmp_path, hidden):
    folder, mine = RunFolder(tmp_path), division([0, 1, 2, 0, 1, 2])
    if hidden:
        save_partition_digest(folder, mine)
        assert folder.read_json("partition.json").keys() == {"format", "sha256"}
    else:
        mine.save(tmp_path / "partition.json")
    assert is_same_partition(folder, division([0, 1, 2, 0, 1, 2]))
    assert not is_same_partition(folder, division([0, 1, 2, 0, 2, 1]))
    assert not is_same_partition(folder, division([0, 1, 2, 0, 1, 2], (0, 1, 0, 1, 2, 1)))
