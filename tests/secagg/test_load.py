"""Fifty clients, and a vector as long as a small network."""

import time
import tracemalloc

import numpy as np
import pytest

from helpers.secagg_clients import LocalTransport, make_roster, masked_client, masked_sum, request

NUMBERS = 600_000


@pytest.mark.slow
def test_fifty_clients_with_600000_numbers_are_summed_within_15_seconds() -> None:
    roster = make_roster(50)
    vector = np.random.default_rng(0).normal(size=NUMBERS)
    parties = {client: masked_client(client, roster) for client in range(50)}
    transport = Forgetful(parties, dict.fromkeys(range(50), vector), silent={("masked", 7)})
    began = time.process_time()
    total = masked_sum(roster)(request(NUMBERS), range(50), transport)
    # All parties take turns in this process, so its own time is what they took together.
    assert time.process_time() - began < 15
    assert np.abs(total.values - 49 * vector).max() <= 50 * 2.0**-41 + 1e-11


def test_the_server_holds_one_vector_however_many_clients_there_are() -> None:
    peaks = []
    for clients in (4, 12):
        roster, length = make_roster(clients), 200_000
        vector = np.ones(length)
        parties = {client: masked_client(client, roster) for client in range(clients)}
        transport = Forgetful(parties, dict.fromkeys(range(clients), vector))
        tracemalloc.start()
        masked_sum(roster)(request(length), range(clients), transport)
        peaks.append(tracemalloc.get_traced_memory()[1] / vector.nbytes)
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 0.5
    assert peaks[1] < 8


class Forgetful(LocalTransport):
    """A transport that keeps nothing of what passes."""

    def exchange(self, stage, messages):  # type: ignore[no-untyped-def]
        for client, answer in super().exchange(stage, messages):
            self.seen.clear()
            yield client, answer
