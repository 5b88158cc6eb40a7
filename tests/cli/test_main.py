import subprocess
import sys

from fedbb import __version__


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "fedbb", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == __version__


def test_bad_input_ends_with_a_message_and_code_2(tmp_path):
    command = [sys.executable, "-m", "fedbb", "show", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr == f"fedbb: {tmp_path} holds no run\n"
