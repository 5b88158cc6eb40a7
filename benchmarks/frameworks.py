"""Other frameworks on the same work: 10 clients × 500 images, one epoch, the small CNN, batch 32.

Each runs in an environment and in processes of its own, from their start, in turns. A round counts
only if every image of every client was trained on. Memory is sampled in a run whose times are not
used.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import tempfile
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import environments, machine, results
from benchmarks.memory import PeakMemory
from benchmarks.work import Work, save_images

LIMIT = 600
"""Seconds after which a run is given up."""


@dataclass(frozen=True)
class Peer:
    """A framework: the folder of its app, its package, how Python starts the app, its options."""

    folder: str
    package: str
    launcher: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
THREADS, PROCESSES, LAST = ("--mode", "thread"), ("--mode", "process"), "--channels-last"
PEERS = {
    "bare loop": Peer("bare", "torch"),
    "fedbb": Peer("fedbb", "fedbb"),
    "Flower": Peer("flower", "flwr"),
    "pfl": Peer("pfl", "pfl"),
    "pfl, a process per core": Peer("pfl", "pfl", (*TORCHRUN, "{cores}")),
    "FedLab": Peer("fedlab", "fedlab"),
    "NVFlare": Peer("nvflare", "nvflare"),
    "BlazeFL, threads": Peer("blazefl", "blazefl", (), THREADS),
    "BlazeFL, threads, channels-last": Peer("blazefl", "blazefl", (), (*THREADS, LAST)),
    "BlazeFL, processes": Peer("blazefl", "blazefl", (), PROCESSES),
    "BlazeFL, processes, channels-last": Peer("blazefl", "blazefl", (), (*PROCESSES, LAST)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the first is shown apart")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--images", type=int, default=500, help="of each client")
    parser.add_argument("--minutes", type=float, default=60.0, help="no repeat that ends later")
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    results.expect_quiet(options.out)
    work = Work("small-cnn", options.clients, options.images)
    made = {name: environments.make(PEERS[name].folder) for name in options.peers}
    pythons = {name: python for name, python in made.items() if isinstance(python, Path)}
    absent = {name: {"failed": why} for name, why in made.items() if isinstance(why, str)}
    peers = {**summarize(take(work, options, pythons)), **absent}
    for name, peer in peers.items():
        if "failed" not in peer:
            peer["version"] = environments.installed(pythons[name], PEERS[name].package)
            peer["python"] = environments.python_version(pythons[name])
            peer["wanted_python"] = environments.wanted_python(PEERS[name].folder)
    values = {
        "repeats": max(peer.get("repeats", 0) for peer in peers.values()),
        "rounds": options.rounds,
        "clients": work.clients,
        "images": work.images,
        "peers": peers,
    }
    report(peers)
    print("written to", results.write("peers", values, options.out))


def take(
    work: Work, options: argparse.Namespace, pythons: dict[str, Path]
) -> dict[str, list[dict[str, Any]]]:
    """Return the runs of each framework: one for the memory, then those with times in turns."""
    taken: dict[str, list[dict[str, Any]]] = {name: [] for name in pythons}
    end, spent = time.monotonic() + 60 * options.minutes, 0.0
    with tempfile.TemporaryDirectory() as scratch:
        data = save_images(Path(scratch) / "images.npz", work.total)
        for repeat in range(options.repeats + 1):
            began = time.monotonic()
            if began + spent > end:
                break
            for name in pythons if repeat % 2 else reversed(pythons):
                if any("failed" in record for record in taken[name]):
                    continue
                folder = Path(scratch) / f"{PEERS[name].folder}-{repeat}-{len(taken[name])}"
                command = _command(name, pythons[name], work, (data, folder), options.rounds)
                record = run(command, Path(scratch), watch=repeat == 0)
                taken[name].append(record if "failed" in record else check(record, work))
            spent = time.monotonic() - began
    return taken


def _command(
    name: str, python: Path, work: Work, places: tuple[Path, Path], rounds: int
) -> list[str]:
    cores = str(machine.facts()["cores"])
    launcher = [part.format(cores=cores) for part in PEERS[name].launcher]
    given = {
        "--rounds": rounds,
        "--clients": work.clients,
        "--images": work.images,
        "--cores": cores,
        "--data": places[0],
        "--folder": places[1],
    }
    app = environments.PEERS / PEERS[name].folder / "app.py"
    arguments = [str(part) for pair in given.items() for part in pair]
    own = PEERS[name].options
    return [str(python), "-W", "ignore", *launcher, str(app), *own, *arguments]


def run(command: list[str], scratch: Path, *, watch: bool) -> dict[str, Any]:
    """Run an app to its end and return the rounds it reported, with their times from its start."""
    environment = {**os.environ, "PYTHONPATH": str(environments.PEERS)}
    with tempfile.TemporaryFile("w+", dir=scratch) as output:
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=scratch,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            # A group to end it by, but no session: Linux shares the cores between sessions
            # (autogroup), and a busy machine would flatter a program that has more of them.
            process_group=0,
        )
        try:
            with PeakMemory(process.pid) if watch else nullcontext() as memory:
                code = process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return {"failed": f"not done after {LIMIT} s"}
        finally:
            _end(process)
        output.seek(0)
        lines = output.read().splitlines()
    shown = [json.loads(line[6:]) for line in lines if line.startswith("ROUND ")]
    if code != 0 or not shown:
        return {"failed": "\n".join(lines[-12:])}
    ends = [began, *(line["at"] for line in shown)]
    seconds = [after - before for before, after in itertools.pairwise(ends)]
    peak = {} if memory is None else {"peak": memory.peak, "processes": memory.processes}
    return {"rounds": shown, "seconds": seconds, **peak}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End whatever an app has left running in its process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def check(record: dict[str, Any], work: Work) -> dict[str, Any]:
    """Return a run if every round trained each image once and the loss fell, else why not."""
    for shown in record["rounds"]:
        wanted = (work.total, work.total * (work.total + 1) // 2)
        if (shown["images"], shown["serials"]) != wanted:
            return {"failed": f"round {shown['round']} trained other images than all: {shown}"}
    losses = [shown["loss"] for shown in record["rounds"]]
    if len(losses) > 1 and not losses[-1] < losses[0]:
        return {"failed": f"the loss did not fall: {losses}"}
    return record


def summarize(taken: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return first and later rounds of each framework, memory, and their ratios to fedbb's."""
    peers = {name: _summary(records) for name, records in taken.items()}
    reference = peers.get("fedbb", {"failed": "not measured"})
    for peer in peers.values():
        if "failed" in peer or "failed" in reference:
            continue
        peer["ratio"] = {
            key: round(_middle(peer[key]) / _middle(reference[key]), 3)
            for key in ("first", "later", "peak")
        }
    return peers


def _summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    failed = [record["failed"] for record in records if "failed" in record]
    if failed:
        return {"failed": failed[0]}
    watched, timed = records[0], records[1:] or records
    return {
        "repeats": len(timed),
        "first": results.spread([record["seconds"][0] for record in timed]),
        "later": results.spread([one for record in timed for one in record["seconds"][1:]]),
        "peak": watched["peak"],
        "processes": watched["processes"],
        "loss": [shown["loss"] for shown in watched["rounds"]],
    }


def _middle(value: dict[str, float] | float) -> float:
    return value["median"] if isinstance(value, dict) else value


def report(peers: dict[str, dict[str, Any]]) -> None:
    """Print times and memory of each framework, and their ratios to fedbb's."""
    for name, peer in peers.items():
        if "failed" in peer:
            print(f"{name:24} failed: {peer['failed']}")
            continue
        ratio = peer.get("ratio", {})
        shown = ", ".join(f"{key} × {value:.2f}" for key, value in ratio.items())
        later, first = results.format_spread(peer["later"]), results.format_spread(peer["first"], 1)
        print(f"{name:24} later {later} s, first {first} s, {peer['peak'] / 2**30:.2f} GB; {shown}")


if __name__ == "__main__":
    main()
