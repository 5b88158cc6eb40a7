import subprocess
import sys
from pathlib import Path

import pytest

from fedbb.data.registry import (
    CATALOGUE,
    cache_status,
    check_files,
    find_entry,
    get_dataset,
    load_dataset,
)
from fedbb.data.source import Source
from fedbb.errors import DataError


def test_an_unknown_name_is_refused_with_the_nearest_and_all_known() -> None:
    with pytest.raises(DataError, match=r"unknown data set 'cifar-10'; did you mean cifar10\?"):
        load_dataset("cifar-10")
    with pytest.raises(
        DataError, match=r"digits.*digit-mosaic.*fashion-mnist.*cifar10.*npz.*table"
    ):
        find_entry("")


@pytest.mark.parametrize("name", ["digits", "digit-mosaic"])
def test_embedded_data_is_always_there_and_whole(tmp_path, name) -> None:
    assert cache_status(name, tmp_path).present
    assert get_dataset(name, tmp_path).present
    assert check_files(name, tmp_path).size == 0
    assert load_dataset(name).task is CATALOGUE[name].task
    assert load_dataset(name).name == name
    with pytest.raises(DataError, match="takes no path"):
        load_dataset(name, path=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["npz", "table", "nih-cxr14", "chexpert"])
def test_a_users_own_data_cannot_be_got(tmp_path, name) -> None:
    assert not cache_status(name).present
    for attempt in (get_dataset, check_files):
        with pytest.raises(DataError, match="your own files"):
            attempt(name, tmp_path)


def test_a_source_says_all_that_a_name_with_arguments_says() -> None:
    options = {"train": 5, "test": 5}
    by_name = load_dataset("digit-mosaic", seed=3, options=options)
    by_source = load_dataset(Source("digit-mosaic", seed=3, options=options))
    assert by_name.train.inputs.tolist() == by_source.train.inputs.tolist()


def test_a_path_may_be_a_string(tmp_path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.npz"):
        load_dataset("nih-cxr14", path=str(tmp_path / "nowhere.npz"))


def test_downloads_of_a_data_set_have_a_folder_of_their_own(monkeypatch) -> None:
    monkeypatch.setenv("FEDBB_DATA", "/somewhere")
    assert Source("cifar10").folder == Path("/somewhere/cifar10")
    assert Source("cifar10", root=Path("/else")).folder == Path("/else/cifar10")


def test_naming_data_sets_does_not_import_scikit_learn() -> None:
    program = "import fedbb.data.registry, sys; print('sklearn' in sys.modules)"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.strip() == "False"
