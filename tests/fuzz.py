"""Fuzz every reader of bytes from outside for some seconds each, and keep what breaks one.

    python tests/fuzz.py [--seconds N] [--out FOLDER] [READER ...]

With atheris installed, inputs are chosen by the code they reach; without it, they are random
changes of a valid example. A finding is an error that is not fedbb's, or a reading that takes
longer than ten seconds. It belongs into a test of its reader.
"""

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path

SECONDS_OF_ONE = 10
PIECES = (b"\x00" * 8, b"\xff" * 8, b"[" * 300, b"9" * 400, b"-1", b"1e999", b"NaN", b"\n", b"")


def all_readers():
    """Return every reader by name; imported here, where atheris may instrument what is imported."""
    from helpers import fuzz_readers

    return fuzz_readers.all_readers()


def read_or_refuse(reader, content, folder):
    """Read the content; fedbb's own errors are what is wanted of bad input."""
    from fedbb.errors import FedbbError

    with suppress(FedbbError):
        reader(content, folder)


def change(content, chance):
    """Return the content with one to four random changes."""
    for _ in range(chance.randint(1, 4)):
        begin, length = chance.randint(0, len(content)), chance.choice((0, 1, 1, 2, 8, 40))
        piece = chance.choice((*PIECES, chance.randbytes(chance.randint(1, 8))))
        content = content[:begin] + piece + content[begin + length :]
    return content


def fuzz_randomly(reader, seconds, folder):
    """Return how many inputs were tried, and those that broke the reader with the reason."""
    chance, example, tried, found = random.Random(0), reader.content(), 0, {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        content, began = change(example, chance), time.monotonic()
        tried += 1
        try:
            read_or_refuse(reader, content, folder)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            found.setdefault(f"{type(error).__name__} in {place.filename}:{place.lineno}", content)
        if time.monotonic() - began > SECONDS_OF_ONE:
            found.setdefault("too slow", content)
    return tried, found


def fuzz_with_atheris(name, seconds, folder):
    """Let atheris fuzz one reader; this process ends with it."""
    import atheris

    with atheris.instrument_imports(include=["fedbb"]):
        reader = all_readers()[name]

    corpus = folder / "corpus"
    corpus.mkdir()
    (corpus / "example").write_bytes(reader.content())
    options = [f"-max_total_time={seconds}", f"-timeout={SECONDS_OF_ONE}", "-print_final_stats=1"]
    words = [sys.argv[0], *options, f"-artifact_prefix={folder}/", str(corpus)]
    atheris.Setup(words, lambda content: read_or_refuse(reader, content, folder))
    atheris.Fuzz()


def has_atheris():
    try:
        import atheris  # noqa: F401
    except ImportError:
        return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=20, help="for each reader")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"))
    parser.add_argument("--guided", help=argparse.SUPPRESS)
    parser.add_argument("readers", nargs="*", help="names; all if none is given")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.guided:
        fuzz_with_atheris(options.guided, options.seconds, options.out)
    findings = 0
    for name in options.readers or all_readers():
        findings += fuzz(name, options)
    sys.exit(1 if findings else 0)


def fuzz(name, options):
    """Fuzz one reader, print what came of it, and return how many findings there are."""
    with tempfile.TemporaryDirectory() as place:
        search = fuzz_guided if has_atheris() else fuzz_randomly
        target = name if has_atheris() else all_readers()[name]
        tried, found = search(target, options.seconds, Path(place))
    print(f"{name}: {tried:,} inputs, {len(found)} findings", flush=True)
    for number, (reason, content) in enumerate(found.items()):
        options.out.mkdir(exist_ok=True)
        (options.out / f"{name.replace(' ', '-')}-{number}").write_bytes(content)
        print(f"  {reason}")
    return len(found)


def fuzz_guided(name, seconds, folder):
    """Have atheris fuzz a reader in a process of its own; return what `fuzz_randomly` returns."""
    words = ("--seconds", str(seconds), "--out", str(folder), "--guided", name)
    command = [sys.executable, __file__, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    tried = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
    if tried is None:
        sys.exit(f"{name}: the fuzzer did not run: {done.stderr[-2000:]}")
    kept = [path for path in folder.iterdir() if path.name.startswith(("crash-", "timeout-"))]
    reason = re.search(r"^.*Error: .*$", done.stderr, re.MULTILINE)
    why = reason[0] if reason else "it ended or took too long"
    return int(tried[1]), {why: kept[0].read_bytes()} if kept else {}


if __name__ == "__main__":
    main()
