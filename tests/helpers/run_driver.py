"""Run a recipe in forked processes that are killed; test_crashes.py starts this by itself."""

import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from fedbb.recipes.reader import read_recipe
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run


def attempt(recipe, path, before=lambda: None):
    """Fork a process that runs or resumes the recipe; return its id."""
    child = os.fork()
    if child:
        return child
    try:
        before()
        for _ in run(recipe, path, resume=True):
            pass
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)


def ended(child):
    """Wait for a process and return its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def sha256(path):
    return RunFolder(path).read_json("summary.json")["sha256"]


def kill_at_random_moments(recipe, folder, kills):
    """Kill and resume until there were enough kills; return the sums of all finished runs."""
    chance = random.Random(0)
    began = time.monotonic()
    assert ended(attempt(recipe, folder / "unhurt")) == 0
    duration = time.monotonic() - began
    sums, done, number = [sha256(folder / "unhurt")], 0, 0
    while done < kills:
        number += 1
        path = folder / f"run-{number}"
        while True:
            child = attempt(recipe, path)
            time.sleep(chance.uniform(0.02, 0.9) * duration)
            os.kill(child, signal.SIGKILL)
            code = ended(child)
            assert code in (0, -signal.SIGKILL), code
            if code == 0 or (done := done + 1) >= kills:
                break
        assert ended(attempt(recipe, path)) == 0
        sums.append(sha256(path))
    return sums


def exit_at_every_write(recipe, folder):
    """End the process at each call of fsync and replace in turn; return the sums after a resume."""
    sums, number = [sha256(folder / "whole")], 0
    while True:
        number += 1
        path = folder / f"point-{number}"
        code = ended(attempt(recipe, path, lambda n=number: stop_at_call(n)))
        if code == 0:
            return sums
        assert code == 137, code
        assert ended(attempt(recipe, path)) == 0
        assert not list(path.rglob("*.part"))
        sums.append(sha256(path))


def stop_at_call(number):
    """Make the process end just before its call number `number` of os.fsync or os.replace."""
    calls = 0

    def counted(function):
        def call(*arguments):
            nonlocal calls
            calls += 1
            if calls == number:
                os._exit(137)
            return function(*arguments)

        return call

    os.fsync, os.replace = counted(os.fsync), counted(os.replace)


if __name__ == "__main__":
    torch.set_num_threads(1)
    work, recipe_path, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    chosen = read_recipe(recipe_path)
    # What torch loads on first use is loaded here once, and not again in every fork.
    for _ in run(chosen, folder / "whole"):
        pass
    if work == "kill":
        results = kill_at_random_moments(chosen, folder, kills=int(sys.argv[4]))
    else:
        results = exit_at_every_write(chosen, folder)
    print("\n".join(results))
