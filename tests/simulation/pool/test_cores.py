import os

import pytest

from fedbb.simulation.pool.cores import usable_cores


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5, 7}, raising=False)


def groups(folder, files, membership="0::/\n"):
    for name, text in files.items():
        path = folder / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "membership").write_text(membership)
    return folder / "groups", folder / "membership"


def test_without_limits_all_cores_of_the_affinity_count(tmp_path, four_cores):
    assert usable_cores(*groups(tmp_path, {"cpu.max": "max 100000\n"})) == 4
    assert usable_cores(tmp_path / "none", tmp_path / "none either") == 4


@pytest.mark.parametrize(("quota", "cores"), [(20000, 1), (100000, 1), (150000, 2), (900000, 4)])
def test_a_quota_grants_so_many_cores_a_part_counting_as_one(tmp_path, four_cores, quota, cores):
    assert usable_cores(*groups(tmp_path, {"cpu.max": f"{quota} 100000\n"})) == cores


def test_the_first_version_of_control_groups_is_understood(tmp_path, four_cores):
    files = {"cpu/job/cpu.cfs_quota_us": "200000\n", "cpu/job/cpu.cfs_period_us": "100000\n"}
    assert usable_cores(*groups(tmp_path, files, "4:cpu,cpuacct:/job\n2:memory:/x\n")) == 2
    files = {"cpu/job/cpu.cfs_quota_us": "-1\n"}
    assert usable_cores(*groups(tmp_path / "free", files, "4:cpu,cpuacct:/job\n")) == 4


def test_the_tightest_group_around_the_process_decides(tmp_path, four_cores):
    files = {"a/cpu.max": "200000 100000", "a/b/cpu.max": "300000 100000", "a/b/c/cpu.max": "max 1"}
    assert usable_cores(*groups(tmp_path, files, "0::/a/b/c\n")) == 2


def test_files_that_make_no_sense_are_passed_over(tmp_path, four_cores):
    assert usable_cores(*groups(tmp_path, {"cpu.max": "much\n"})) == 4


def test_this_machine_has_a_core():
    assert usable_cores() >= 1
