"""Memory stays flat on data that is larger than a process may hold."""

import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).parents[1] / "helpers" / "large_driver.py"
MEGABYTES = 512


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_peak_of_a_run_is_far_below_the_size_of_its_data(tmp_path):
    """The process may take 384 MB: a copy of the images ends it; mapped pages are given back."""
    file = tmp_path / "images.npy"
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(file), str(MEGABYTES)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert file.stat().st_size > 0.99 * MEGABYTES * 2**20
    before, peak = map(int, done.stdout.split())
    print(f"resident memory: {before} MB before, {peak} MB at most, {MEGABYTES} MB of images")
    assert peak - before < 0.75 * MEGABYTES
