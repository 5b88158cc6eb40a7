import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedbb.simulation.pool.worker import share_arrays

dtypes = st.sampled_from([np.uint8, np.float32, np.int64, np.float64, np.bool_])
arrays = dtypes.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_side=0, max_dims=4)))


@given(st.lists(arrays, max_size=4))
def test_arrays_come_back_as_they_were(drawn):
    named = {str(number): array for number, array in enumerate(drawn)}
    block = share_arrays(named)
    for name, array in block.arrays().items():
        assert array.dtype == named[name].dtype
        assert array.shape == named[name].shape
        assert array.tobytes() == named[name].tobytes()
    block.close()


def test_arrays_outlive_the_handle_and_cannot_be_changed():
    block = share_arrays({"a": np.arange(6).reshape(2, 3).T})
    (array,) = block.arrays().values()
    block.close()
    assert array.tolist() == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 1


@pytest.mark.parametrize("part", [slice(None), slice(500, 900), slice(3, 3)])
def test_a_mapped_file_is_mapped_again_and_not_copied(tmp_path, part):
    np.save(tmp_path / "a.npy", np.arange(9000).reshape(1000, 9))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")[part]
    block = share_arrays({"a": mapped})
    assert os.fstat(block.handle).st_size == 0
    assert np.array_equal(block.arrays()["a"], mapped)
    block.close()


def test_a_mapped_part_with_gaps_is_copied(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(90).reshape(10, 9))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")[::2, 1:]
    block = share_arrays({"a": mapped})
    assert os.fstat(block.handle).st_size >= mapped.nbytes
    assert np.array_equal(block.arrays()["a"], mapped)
    block.close()
