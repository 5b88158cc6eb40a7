"""Cost of secure aggregation: time and bytes of a client and of the server, against a plain sum.

All parties run in one process, one after another, so that every second belongs to one party. Client
time is the median over clients of the sum over all stages. Journals are files that are synced to
disk. Plain clients send their update as float32, as runs without privacy do; masked clients send
8 bytes per number. Masked and plain sums alternate with a sum in which one client drops out after
the preparation, the most expensive moment for the server. Statistics are three integers.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.page import MISSING, fill, table
from fedbb.secagg.bfv.sums import BfvSumClient, BfvSumServer
from fedbb.secagg.masked.client import MaskedSumClient
from fedbb.secagg.masked.server import MaskedSumServer
from fedbb.secagg.neighbours import choose_neighbourhood
from fedbb.secagg.primitives.keys import Identity
from fedbb.secagg.protocol.replay_guard import FileJournal
from fedbb.secagg.protocol.roster import Roster
from fedbb.secagg.protocol.secure_aggregation import (
    SecureAggregation,
    SecureAggregationClient,
    SumRequest,
)

CLIENTS = (5, 10, 50)
NUMBERS = 600_000
STATISTICS = 3

SPARSE_NUMBERS, SPARSE_GOAL = 100_000, 60.0
"""Numbers of a sum over many clients with a sparse graph, and most seconds of all its parties."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs="+", type=int, default=CLIENTS)
    parser.add_argument("--numbers", type=int, default=NUMBERS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--sparse", nargs="+", type=int, help="measure sparse graphs of this many clients instead"
    )
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    parser.add_argument("--page", type=Path, help="put the tables of the result into this page")
    options = parser.parse_args()
    if options.page:
        text = options.page.read_text(encoding="utf-8")
        for name, file, content in (
            ("cost", "secure", tables),
            ("sparse-cost", "sparse", sparse_table),
        ):
            if f"<!-- {name} -->" not in text:
                continue
            if f"<!-- /{name} -->" not in text:
                text = text.replace(f"<!-- {name} -->", f"<!-- {name} -->\n<!-- /{name} -->")
            result = results.read(file, options.out)
            text = fill(text, name, MISSING if result is None else content(result))
        options.page.write_text(text, encoding="utf-8")
        print("written to", options.page)
        return
    results.expect_quiet(options.out)
    if options.sparse:
        numbers = min(options.numbers, SPARSE_NUMBERS)
        sparse = [measure_sparse(k, numbers, options.repeats) for k in options.sparse]
        for case in sparse:
            total, goal = case["total_seconds"]["median"], SPARSE_GOAL
            late = f", more than {goal} s" if case["clients"] == 1_000 and total > goal else ""
            worked = case["processor_seconds"]["median"]
            print(
                f"{case['clients']} clients, {numbers:,} numbers: {total:.1f} s, "
                f"{worked:.1f} s of CPU time{late}"
            )
        values = {"numbers": numbers, "repeats": options.repeats, "cases": sparse}
        print("written to", results.write("sparse", values, options.out))
        return
    cases = []
    for clients in options.clients:
        cases.append(measure(clients, options.numbers, options.repeats))
        report(cases[-1])
    values = {"numbers": options.numbers, "repeats": options.repeats, "cases": cases}
    print("written to", results.write("secure", values, options.out))


@dataclass
class Turn:
    """Seconds and bytes of one sum, by client; what is nobody's is the server's."""

    seconds: dict[int, float] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)
    received: dict[int, int] = field(default_factory=dict)
    whole: float = 0.0
    processor: float = 0.0

    def figures(self) -> dict[str, float]:
        """Return the figures of a client in the middle, of the server, and of all together."""
        return {
            "client_seconds": statistics.median(self.seconds.values()),
            "server_seconds": self.whole - sum(self.seconds.values()),
            "total_seconds": self.whole,
            "processor_seconds": self.processor,
            "client_sent": statistics.median(self.sent.values()),
            "client_received": statistics.median(self.received.values()),
        }


@dataclass
class MeasuredTransport:
    """Asks parties in this process and counts; one may vanish when a stage begins."""

    parties: Mapping[int, SecureAggregationClient]
    vectors: Mapping[int, np.ndarray]
    turn: Turn
    vanishing: Set[tuple[str, int]] = frozenset()

    def exchange(self, stage: str, messages: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield the answers of those who have not vanished."""
        for client, message in messages.items():
            if (stage, client) in self.vanishing:
                continue
            began = time.perf_counter()
            answer = self.parties[client].answer(stage, message, lambda c=client: self.vectors[c])
            _add(self.turn.seconds, client, time.perf_counter() - began)
            _add(self.turn.sent, client, len(answer))
            _add(self.turn.received, client, len(message))
            yield client, answer


def measure(clients: int, numbers: int, repeats: int) -> dict[str, Any]:
    """Return the figures of every kind of sum over this number of clients, taken in turns."""
    identities = {client: Identity.draw() for client in range(clients)}
    server = Identity.draw()
    roster = Roster({c: identity.public for c, identity in identities.items()}, server.public)
    rng = np.random.default_rng(0)
    change = rng.normal(0, 1e-2, numbers)
    changes = dict.fromkeys(range(clients), change)
    counts = {client: rng.integers(1, 2**40, STATISTICS) for client in range(clients)}
    with tempfile.TemporaryDirectory() as scratch:
        journals = {client: FileJournal(Path(scratch) / str(client)) for client in range(clients)}
        masked = {c: MaskedSumClient(c, identities[c], roster, journals[c]) for c in range(clients)}
        hidden = {c: BfvSumClient(c, identities[c], roster, journals[c]) for c in range(clients)}
        masks, bfv = MaskedSumServer(roster, server), BfvSumServer(roster, server)
        gone = {("masked", clients // 2)}
        kinds: dict[str, Callable[[int], Turn]] = {
            "plain": lambda _: plain(change, clients),
            "masked": lambda n: secure(masks, masked, changes, f"model {n}"),
            "one_gone": lambda n: secure(masks, masked, changes, f"gone {n}", gone),
            "statistics_masked": lambda n: secure(masks, masked, counts, f"counts {n}"),
            "statistics_bfv": lambda n: secure(bfv, hidden, counts, f"bfv {n}"),
        }
        turns = in_turns(kinds, repeats)
    return {"clients": clients, **{kind: _spreads(taken) for kind, taken in turns.items()}}


def measure_sparse(clients: int, numbers: int, repeats: int) -> dict[str, Any]:
    """Return the figures of masked sums with a sparse graph, in which 3 % of the clients drop out.

    The graph is that of a recipe's default values, for rounds of which two thirds must be left. The
    journal is that of simulated clients: one file for all, not synced to disk.
    """
    identities = {client: Identity.draw() for client in range(clients)}
    server = Identity.draw()
    keys = {client: identity.public for client, identity in identities.items()}
    least = 2 * clients // 3 + 1
    graph = choose_neighbourhood(least, clients, clients // 10, 0.05)
    terms = {"neighbours": graph.drawn, "neighbours_needed": graph.needed}
    roster = Roster(keys, server.public, least=least, **terms)
    change = np.random.default_rng(0).normal(0, 1e-2, numbers)
    changes = dict.fromkeys(range(clients), change)
    gone = {("masked", client) for client in range(0, clients, 33)}
    turns = []
    with tempfile.TemporaryDirectory() as scratch:
        for repeat in range(repeats):
            journal = FileJournal(Path(scratch) / str(repeat), durable=False)
            parties = {
                client: MaskedSumClient(client, identity, roster, journal.of(client))
                for client, identity in identities.items()
            }
            aggregation = MaskedSumServer(roster, server)
            turns.append(secure(aggregation, parties, changes, f"model {repeat}", gone))
    return {"clients": clients, "gone": len(gone), **terms, **_spreads(turns)}


def in_turns(kinds: Mapping[str, Callable[[int], Turn]], repeats: int) -> dict[str, list[Turn]]:
    """Take every kind once in each repeat; what a first, uncounted one shows is forgotten."""
    turns: dict[str, list[Turn]] = {kind: [] for kind in kinds}
    for repeat in range(repeats + 1):
        for kind, take in kinds.items():
            turn = take(repeat)
            if repeat > 0:
                turns[kind].append(turn)
    return turns


def secure(
    aggregation: SecureAggregation,
    parties: Mapping[int, SecureAggregationClient],
    vectors: Mapping[int, np.ndarray],
    run: str,
    vanishing: Set[tuple[str, int]] = frozenset(),
) -> Turn:
    """Return what a secure sum took, once its result is seen to be right."""
    turn = Turn()
    first = vectors[0]
    request = SumRequest(run, 1, len(first), whole=first.dtype == np.int64)
    transport = MeasuredTransport(parties, vectors, turn, vanishing)
    began, worked = time.perf_counter(), time.process_time()
    total = aggregation(request, sorted(parties), transport)
    turn.whole = time.perf_counter() - began
    turn.processor = time.process_time() - worked
    expected = sum(vectors[client] for client in total.clients)
    if np.abs(total.values - expected).max() > len(parties) * 2.0**-41 + 1e-9:
        raise SystemExit(f"{run}: the sum is wrong")
    return turn


def plain(change: np.ndarray, clients: int) -> Turn:
    """Return what the same sum takes if everyone may read everything."""
    turn = Turn()
    total = np.zeros(len(change))
    began, worked = time.perf_counter(), time.process_time()
    for client in range(clients):
        here = time.perf_counter()
        message = change.astype(np.float32).tobytes()
        _add(turn.seconds, client, time.perf_counter() - here)
        _add(turn.sent, client, len(message))
        _add(turn.received, client, 0)
        total += np.frombuffer(message, np.float32)
    turn.whole = time.perf_counter() - began
    turn.processor = time.process_time() - worked
    return turn


def _spreads(turns: Sequence[Turn]) -> dict[str, dict[str, float]]:
    figures = [turn.figures() for turn in turns]
    return {name: results.spread([figure[name] for figure in figures]) for name in figures[0]}


def _add(counts: dict[int, Any], client: int, amount: float) -> None:
    counts[client] = counts.get(client, 0) + amount


NAMES = {
    "plain": "plain, 4 bytes per number",
    "masked": "masked",
    "one_gone": "masked, one dropout",
    "statistics_masked": "statistics, masked",
    "statistics_bfv": "statistics, BFV",
}


def report(case: Mapping[str, Any]) -> None:
    """Print the figures for one number of clients."""
    for kind, name in NAMES.items():
        figures = case[kind]
        shown = {
            key: results.format_spread(figures[key], 4)
            for key in figures
            if key.endswith("seconds")
        }
        sent = figures["client_sent"]["median"]
        print(
            f"{case['clients']:3} clients, {name:25} client {shown['client_seconds']} s, "
            f"server {shown['server_seconds']} s, all {shown['total_seconds']} s, "
            f"sent {sent:,.0f} B"
        )


def tables(result: Mapping[str, Any]) -> str:
    """Return the figures as a table of Markdown, with what they were taken on."""
    rows = [
        (
            str(case["clients"]),
            name,
            _milliseconds(case[kind]["client_seconds"]),
            _milliseconds(case[kind]["server_seconds"]),
            f"{case[kind]['total_seconds']['median']:.2f} s",
            _bytes(case[kind]["client_sent"]["median"]),
            _bytes(case[kind]["client_received"]["median"]),
        )
        for case in result["cases"]
        for kind, name in NAMES.items()
    ]
    head = (
        "clients",
        "sum",
        "client time",
        "server time",
        "total, sequential",
        "client sends",
        "client receives",
    )
    facts = result["machine"]
    note = (
        f"{result['numbers']:,} numbers, {STATISTICS} statistics; median (min–max) of "
        f"{result['repeats']} sums, interleaved in one process; "
        f"{facts['cores']} cores of {facts['processor']}, Python {facts['python']}, "
        f"{facts['date']}."
    )
    return f"{table(head, rows)}\n\n{note}"


def sparse_table(result: Mapping[str, Any]) -> str:
    """Return the figures of sums with sparse graphs as a table of Markdown."""
    rows = [
        (
            f"{case['clients']:,}",
            str(case["gone"]),
            str(case["neighbours"]),
            _milliseconds(case["client_seconds"]),
            f"{results.format_spread(case['server_seconds'], 1)} s",
            f"{results.format_spread(case['total_seconds'], 1)} s",
            f"{results.format_spread(case['processor_seconds'], 1)} s",
            _bytes(case["client_sent"]["median"]),
            _bytes(case["client_received"]["median"]),
        )
        for case in result["cases"]
    ]
    head = (
        "clients",
        "dropouts",
        "drawn neighbours",
        "client time",
        "server time",
        "total, sequential",
        "of this CPU time",
        "client sends",
        "client receives",
    )
    facts = result["machine"]
    note = (
        f"{result['numbers']:,} numbers; median (min–max) of {result['repeats']} sums in one "
        f"process; {facts['cores']} cores of {facts['processor']}, Python {facts['python']}, "
        f"{facts['date']}."
    )
    return f"{table(head, rows)}\n\n{note}"


def _milliseconds(values: Mapping[str, float]) -> str:
    return results.format_spread({key: 1000 * value for key, value in values.items()}, 1) + " ms"


def _bytes(number: float) -> str:
    return f"{number / 1e6:.2f} MB" if number >= 1e6 else f"{number / 1e3:.1f} kB"


if __name__ == "__main__":
    main()
