"""P5: a server that takes the difference of two sums which differ in one client.

Each attack runs twice: on clients that keep neither rounds nor runs, as they were before, it
recovers the victim's change; on clients that do, there is no second sum.
"""

import numpy as np
import pytest

from fedbb.errors import TooFewError
from fedbb.methods import build_method
from fedbb.secagg.cbr import SCALARS
from fedbb.secagg.protocol.replay_guard import ReplayGuard, RunLimit
from fedbb.secagg.protocol.secure_aggregation import SumRequest
from fedbb.secagg.round import RoundWork, StatisticsClient
from fedbb.secagg.simulated import RoundTraining, SimulatedClient, SimulatedTransport
from fedbb.training.config import LocalConfig
from helpers.secagg_clients import MemoryJournal, masked_client, masked_sum
from helpers.secagg_federation import CLIENTS, Federation

VICTIM = 2
OTHERS = [client for client in range(CLIENTS) if client != VICTIM]
ROUNDS = 3


@pytest.fixture(params=[False, True], ids=["unguarded", "guarded"])
def guarded(request):
    """Whether clients keep the rounds and runs that they took part in."""
    return request.param


@pytest.fixture
def federation(guarded, monkeypatch):
    """Clients whose statistics are summed, and whose rounds and runs may be limited."""
    if not guarded:
        monkeypatch.setattr(ReplayGuard, "_check_round", lambda guard, attempt_id: None)
    # All examples in one batch: the order of examples differs between rounds.
    made = Federation(build_method("fedbb", {}), least=4, plan=LocalConfig(batch_size=80, lr=0.1))
    for number, client in made.clients.items():
        digest = made.roster.digest
        limits = {"rounds": ROUNDS, "runs": RunLimit(MemoryJournal(), digest)} if guarded else {}
        sums = masked_client(number, made.roster, **limits)
        statistics = StatisticsClient("run", number, made.roster, client.secrets, sums.journal)
        made.clients[number] = SimulatedClient(client.contributor, sums, statistics)
    made.sum_statistics()
    return made


def changes(federation, clients, number, run="run"):
    """Return the sum of the clients' weighted changes in a round, from the first model."""
    state = federation.first
    training = RoundTraining(federation.engine, state, number, 0)
    sums = federation.clients[0].secrets.sums
    length = sum(tensor.numel() for tensor in state.params.values())
    length += sum(t.numel() for t in state.buffers.values() if t.is_floating_point())
    view = federation.view(sums, RoundWork(number, state, {}))
    request = SumRequest(run, number, length + SCALARS, view=view)
    transport = SimulatedTransport(federation.clients, training)
    total = masked_sum(federation.roster, f"{run} {number}")(request, clients, transport)
    return total.values[:-SCALARS]


def victims_change(federation):
    (update,) = RoundTraining(federation.engine, federation.first, 1, 0).train([VICTIM])
    contributor = federation.clients[VICTIM].contributor
    sums = federation.clients[VICTIM].secrets.sums
    return contributor.vector(federation.first, update, sums)[:-SCALARS]


def cosine(one, two):
    return float(one @ two / np.linalg.norm(one) / np.linalg.norm(two))


def test_rounds_of_the_servers_own_numbering_do_not_isolate_a_client(federation, guarded, caplog):
    everyone = changes(federation, range(CLIENTS), 1)
    if guarded:
        with pytest.raises(TooFewError, match="nothing was revealed"):
            changes(federation, OTHERS, 1000)
        assert "round 1000, attempt 1 is not in the recipe, which has 3 rounds" in caplog.text
        return
    difference = everyone - changes(federation, OTHERS, 1000)
    # The others draw other random numbers in that round; by chance the cosine would be below 0.1.
    assert cosine(difference, victims_change(federation)) > 0.5


def test_an_earlier_round_that_was_left_out_is_not_made_up_for(federation, guarded, caplog):
    everyone = changes(federation, range(CLIENTS), 2)
    if guarded:
        with pytest.raises(TooFewError):
            changes(federation, OTHERS, 1)
        assert "has answered round 2 of run; new rounds must rise" in caplog.text
        return
    difference = everyone - changes(federation, OTHERS, 1)
    # The others draw other random numbers in that round; by chance the cosine would be below 0.1.
    assert cosine(difference, victims_change(federation)) > 0.5


def test_a_second_run_without_a_client_does_not_isolate_it(federation, guarded, caplog):
    everyone = changes(federation, range(CLIENTS), 1)
    if guarded:
        with pytest.raises(TooFewError):
            changes(federation, OTHERS, 1, run="again")
        assert "this site has taken part in run" in caplog.text
        return
    difference = everyone - changes(federation, OTHERS, 1, run="again")
    assert np.abs(difference - victims_change(federation)).max() < 1e-11
