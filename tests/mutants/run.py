"""Break chosen lines of the package one at a time, and see whether the closest tests notice.

    python tests/mutants/run.py [--jobs N] [--least 0.97] [TEXT ...]

mutants.toml lists the lines. A line is found by its text anywhere in src/fedbb, so that code may
move; a text that is gone, or that occurs more than once, ends the program with its number. Every
mutant is tried in a copy of the tree by a forked process, which has torch imported already.
TEXT chooses mutants whose line or tests contain it; 68 and 60-70 choose mutants by number.
"""

import argparse
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path("src/fedbb")
COPIED = ("src", "tests", "pyproject.toml", "README.md", "docs", "examples", "benchmarks")
PRELOADED = (
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "cryptography.hazmat.primitives.asymmetric.x25519",
    "matplotlib",
    "pydantic",
    "pytest",
    "safetensors.torch",
    "scipy.stats",
    "sklearn.metrics",
    "torch",
    "typer",
)
"""What most tests import. None of it imports fedbb, which differs from mutant to mutant."""

SECONDS = 300
KILLED, SURVIVED, BROKEN = "killed", "SURVIVED", "BROKEN"


@dataclass(frozen=True)
class Mutant:
    """A line, what it becomes, and the tests that must fail then.

    `inside` is part of the path of the file, for a text that several files have.
    """

    number: int
    line: str
    becomes: str
    tests: tuple[str, ...]
    inside: str = ""

    @property
    def title(self):
        """The change in one line."""
        return f"{self.line.strip()} → {self.becomes.strip() or '(nothing)'}".replace("\n", "⏎")


def read_mutants(path):
    """Return the mutants of a file; each section names the tests of its mutants."""
    sections = tomllib.loads(path.read_text(encoding="utf-8"))["section"]
    found = []
    for section in sections:
        for entry in section["mutant"]:
            tests = tuple(entry.get("tests", section["tests"]))
            inside = entry.get("in", section.get("in", ""))
            found.append(Mutant(len(found) + 1, entry["line"], entry["becomes"], tests, inside))
    return found


def locate(mutant, sources):
    """Return the file that holds the line, and the file's text with the line broken."""
    places = [
        (path, text)
        for path, text in sources.items()
        if mutant.inside in str(path) and mutant.line in text
    ]
    times = sum(text.count(mutant.line) for _, text in places)
    if times != 1:
        raise LookupError(
            f"mutant {mutant.number} ({mutant.title}): its line occurs {times} times in "
            f"{PACKAGE}{' in ' + mutant.inside if mutant.inside else ''}; change mutants.toml"
        )
    path, text = places[0]
    return path, text.replace(mutant.line, mutant.becomes)


def check(mutants, sources, root=ROOT):
    """Return what is wrong with the list, in words."""
    faults = []
    for mutant in mutants:
        try:
            locate(mutant, sources)
        except LookupError as error:
            faults.append(str(error))
        faults += [
            f"mutant {mutant.number}: there is no {test}"
            for test in mutant.tests
            if not has_test(root / "tests", test)
        ]
    return faults


def has_test(folder, name):
    """Tell whether there is a test of this name: a folder, a file, or a function of a file."""
    path, _, function = name.partition("::")
    file = folder / path
    return file.exists() and (not function or f"def {function}(" in file.read_text("utf-8"))


def is_meant(mutant, text):
    """Return whether a mutant has this number, is in this range, or contains this text."""
    first, _, last = text.partition("-")
    if first.isdecimal() and (last or first).isdecimal():
        return int(first) <= mutant.number <= int(last or first)
    return text in f"{mutant.title} {' '.join(mutant.tests)}"


def read_sources(root):
    """Return the text of every file of the package by its path."""
    return {
        path.relative_to(root): path.read_text(encoding="utf-8")
        for path in sorted((root / PACKAGE).rglob("*.py"))
    }


def copy_tree(target):
    """Copy what tests need."""
    target.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            skip = shutil.ignore_patterns("__pycache__", "results")
            shutil.copytree(source, target / name, ignore=skip)
        else:
            shutil.copy(source, target / name)


def run_tests(tree, tests, log):
    """Return the exit code of pytest for these tests, in a forked process."""
    child = os.fork()
    if child == 0:
        run_in_child(tree, tests, log)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, 9)
    os.waitpid(child, 0)
    return 1  # a test that never ends has noticed


def run_in_child(tree, tests, log):
    os.setsid()
    # A shell's background jobs ignore Ctrl-C, which some tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(tree)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # A compiled file is known by time and size, which a mutant may share with its original.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["PYTHONPATH"] = f"{tree}/src"
    sys.dont_write_bytecode = True
    sys.path.insert(0, f"{tree}/src")
    code = 3
    try:
        import pytest

        options = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--timeout=120")
        profile = "--hypothesis-profile=mutants"  # few examples: what breaks a law breaks it often
        code = int(pytest.main([*options, profile, *(f"tests/{test}" for test in tests)]))
        place = str(sys.modules["fedbb"].__file__)
        code = code if place.startswith(str(tree)) else 4
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def judge(code):
    """Tell what an exit code of pytest means for a mutant."""
    return {0: SURVIVED, 1: KILLED}.get(code, BROKEN)


def try_mutant(mutant, tree, sources):
    """Break the line in this copy, run the tests, and mend it."""
    path, text = locate(mutant, sources)
    file = tree / path
    file.write_text(text, encoding="utf-8")
    # No compiled file has this time, so that none is taken for the mutant's.
    os.utime(file, (mutant.number, mutant.number))
    try:
        return judge(run_tests(tree, mutant.tests, tree / f"mutant-{mutant.number}.log"))
    finally:
        file.write_text(sources[path], encoding="utf-8")
        os.utime(file, (0, 0))


def check_unbroken(tests, tree):
    """End the program if these tests fail on the code as it is."""
    log = tree / "unbroken.log"
    if run_tests(tree, tests, log) != 0:
        print(log.read_text()[-3000:])
        sys.exit(f"{' '.join(tests)} fails on the code as it is")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--least", type=float, default=0.97, help="share that must be killed")
    parser.add_argument("--check", action="store_true", help="only look for the lines")
    parser.add_argument("texts", nargs="*", help="choose mutants by number, range or text")
    options = parser.parse_args()
    sources = read_sources(ROOT)
    mutants = read_mutants(Path(__file__).with_name("mutants.toml"))
    faults = check(mutants, sources)
    if faults:
        sys.exit("\n".join(faults))
    if options.texts:
        mutants = [
            mutant for mutant in mutants if any(is_meant(mutant, text) for text in options.texts)
        ]
    print(f"{len(mutants)} mutants")
    if not options.check:
        run_all(mutants, sources, options)


def run_all(mutants, sources, options):
    """Try all mutants, print the survivors, and end with an error if there are too many."""
    for name in PRELOADED:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    began, groups = time.monotonic(), defaultdict(list)
    for mutant in mutants:
        groups[mutant.tests].append(mutant)
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        trees = SimpleQueue()
        for number in range(options.jobs):
            copy_tree(Path(place) / str(number))
            trees.put(Path(place) / str(number))

        def try_group(tests):
            tree, found = trees.get(), Counter()
            try:
                check_unbroken(tests, tree)
                for mutant in groups[tests]:
                    verdict = try_mutant(mutant, tree, sources)
                    found[verdict] += 1
                    if verdict != KILLED:
                        print(f"{verdict} {mutant.number}: {mutant.title}", flush=True)
            finally:
                trees.put(tree)
            print(f"{tests[0]}: {dict(found)}, {time.monotonic() - began:.0f} s", flush=True)
            return found

        with ThreadPoolExecutor(options.jobs) as pool:
            verdicts = sum(pool.map(try_group, groups), Counter())
    killed = verdicts[KILLED]
    print(
        f"killed {killed} of {len(mutants)} mutants ({killed / len(mutants):.1%}), "
        f"{verdicts[BROKEN]} do not import, {time.monotonic() - began:.0f} s"
    )
    sys.exit(0 if killed >= options.least * len(mutants) and not verdicts[BROKEN] else 1)


if __name__ == "__main__":
    main()
