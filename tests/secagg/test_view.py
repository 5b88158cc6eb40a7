"""A lying server: it tells clients different things to read one client's change from a sum.

Each attack runs twice: with a view that binds nothing, as keys were derived before, it recovers
the victim's change; with the view that clients compute from what they received, only noise.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
import torch

from fedbb.errors import PrivacyError
from fedbb.methods import build_method
from fedbb.records import ModelState
from fedbb.secagg import simulated
from fedbb.secagg.cbr import SCALARS, Agreement, Bounds, Contributor, Sums, Terms
from fedbb.secagg.protocol.messages import SignedMessage, sign_message, verify_message
from fedbb.secagg.protocol.roster import AGGREGATOR
from fedbb.secagg.protocol.secure_aggregation import SumRequest
from fedbb.secagg.round import CONFIRM, StatisticsRound
from fedbb.secagg.simulated import RoundTraining, SimulatedTransport
from fedbb.secagg.view import model_digest, view_digest
from fedbb.training.config import LocalConfig, TrainJob
from helpers.secagg_clients import SERVER, masked_sum
from helpers.secagg_federation import CLIENTS, Federation, everyone

VICTIM = 2
TERMS = Terms(0.5, 1e-3)


@dataclass
class LyingTransport:
    """A server that tells the victim the truth, and the others something else."""

    truth: object
    lie: object

    def exchange(self, stage, messages):
        for client, message in messages.items():
            told = self.truth if client == VICTIM else self.lie
            yield from told.exchange(stage, {client: message})


@dataclass
class FalseSums:
    """A server that signs other sums for all clients but the victim (attack P1)."""

    transport: object
    roster: object

    def exchange(self, stage, messages):
        if stage == CONFIRM:
            messages = {k: data if k == VICTIM else self.lie(data) for k, data in messages.items()}
        return self.transport.exchange(stage, messages)

    def lie(self, data):
        told = verify_message(data, self.roster, CONFIRM, AGGREGATOR)
        _, *rest = told.facts["sums"]
        facts = {**told.facts, "sums": [2**62, *rest]}
        signed = SignedMessage(told.attempt_id, told.stage, AGGREGATOR, facts)
        return sign_message(signed, self.roster, SERVER)


@pytest.fixture(params=[False, True], ids=["unbound", "bound"])
def bound(request, monkeypatch):
    """Whether views are bound; without, keys depend on nothing that the server tells."""
    if not request.param:
        monkeypatch.setattr(simulated, "view_digest", lambda *told: "")
    return request.param


@pytest.fixture
def vectors(monkeypatch):
    """What each client added to the last sum."""
    found, honest = {}, Contributor.vector

    def keep(self, current, update, sums, *rest):
        found[self.info.client] = honest(self, current, update, sums, *rest)
        return found[self.info.client].copy()

    monkeypatch.setattr(Contributor, "vector", keep)
    return found


def attack(federation, transport, view=""):
    """Return the changes in the sum that the lying server gets."""
    federation.engine.state_rounds.clear()
    length = sum(t.numel() for t in federation.first.params.values())
    length += sum(t.numel() for t in federation.first.buffers.values() if t.is_floating_point())
    request = SumRequest("run", 1, length + SCALARS, view=view)
    total = masked_sum(federation.roster, "rounds")(request, range(CLIENTS), transport)
    assert total.clients == tuple(range(CLIENTS))
    return total.values[:-SCALARS]


def cosine(one, two):
    return float(one @ two / np.linalg.norm(one) / np.linalg.norm(two))


def check(found, vectors, bound, least):
    likeness = cosine(found, vectors[VICTIM][:-SCALARS])
    if bound:
        # Uniform numbers in hundreds of dimensions: a cosine of about 1/√n by chance.
        assert abs(likeness) < 5 / np.sqrt(len(found))
        assert np.abs(found).max() > 2**20
    else:
        assert likeness > least


def train_with(federation, state, engine=None):
    training = RoundTraining(engine or federation.engine, state, 1, 0)
    return SimulatedTransport(federation.clients, training)


def test_false_sums_for_all_others_do_not_isolate_a_client(bound, vectors):
    """P1: under Σn = 2^62 the weights of the others round to 0."""
    federation = Federation(build_method("fedavg", {}))
    statistics = StatisticsRound("run", federation.roster, SERVER, federation.agreement)
    view = "" if not bound else view_digest(federation.agreement)
    transport = FalseSums(SimulatedTransport(federation.clients), federation.roster)
    aggregation = masked_sum(federation.roster)
    statistics(
        lambda asked, *rest: aggregation(replace(asked, view=view), *rest), range(5), transport
    )
    told = [federation.clients[client].secrets.sums.samples for client in range(CLIENTS)]
    assert told == [2**62 if client != VICTIM else 80 for client in range(CLIENTS)]
    found = attack(federation, train_with(federation, federation.first))
    check(found, vectors, bound, 0.999999)


def test_a_dead_model_for_all_others_does_not_isolate_a_client(bound, vectors):
    """P2: a model of zeros has no gradients but those of its last biases."""
    federation = Federation(build_method("fedavg", {}))
    federation.sum_statistics()
    first = federation.first
    dead = ModelState(
        {name: torch.zeros_like(t) for name, t in first.params.items()}, first.buffers
    )
    transport = LyingTransport(train_with(federation, first), train_with(federation, dead))
    check(attack(federation, transport), vectors, bound, 0.9)


def test_another_recipe_for_all_others_does_not_isolate_a_client(bound, vectors):
    """P2: at a rate of almost 0 the others' models do not change."""
    federation = Federation(build_method("fedavg", {}))
    federation.sum_statistics()
    still = Federation(build_method("fedavg", {}), plan=LocalConfig(batch_size=8, lr=1e-12))
    recipe = replace(federation.agreement, recipe="another")
    for number, client in federation.clients.items():
        if number != VICTIM:
            client.contributor = Contributor(client.contributor.info, recipe)
    transport = LyingTransport(
        train_with(federation, federation.first),
        train_with(federation, federation.first, still.engine),
    )
    check(attack(federation, transport), vectors, bound, 0.9)


def test_a_server_whose_clients_have_different_views_gets_an_error_instead_of_a_model():
    federation = Federation(build_method("fedbb", {}))
    secure_round = federation.secure_round()
    victim = federation.clients[VICTIM]
    other = replace(federation.agreement, recipe="another")
    victim.contributor = Contributor(victim.contributor.info, other)
    with pytest.raises(PrivacyError, match="different models, recipes or sums add up to noise"):
        secure_round(1, federation.first, everyone())
    assert federation.recorded == []


def average_agreement(**changes):
    agreed = Agreement(TERMS, build_method("fedavg", {}).merge, Bounds(0.5, 2.0), "recipe")
    return replace(agreed, **changes)


SUMS = Sums(80, 12.5, (0, 1, 2))
VIEWS = [
    (average_agreement(recipe="other"), SUMS, "model", {0: 1}),
    (average_agreement(terms=Terms(0.6, 1e-3)), SUMS, "model", {0: 1}),
    (average_agreement(terms=Terms(0.5, 1e-2)), SUMS, "model", {0: 1}),
    (average_agreement(bounds=Bounds(0.5, 3.0)), SUMS, "model", {0: 1}),
    (average_agreement(), replace(SUMS, samples=81), "model", {0: 1}),
    (average_agreement(), replace(SUMS, evenness=np.nextafter(12.5, 13.0).item()), "model", {0: 1}),
    (average_agreement(), replace(SUMS, clients=(0, 1)), "model", {0: 1}),
    (average_agreement(), None, "model", {0: 1}),
    (average_agreement(), SUMS, "other", {0: 1}),
    (average_agreement(), SUMS, None, {0: 1}),
    (average_agreement(), SUMS, "model", {0: 2}),
    (average_agreement(), SUMS, "model", {}),
]


def test_every_part_of_a_view_changes_its_digest_and_the_order_of_clients_does_not():
    first = view_digest(average_agreement(), SUMS, "model", {0: 1})
    digests = [view_digest(*view) for view in VIEWS]
    assert len({first, *digests}) == len(VIEWS) + 1
    ordered = [
        view_digest(average_agreement(), SUMS, "model", told)
        for told in ({0: 1, 2: 1}, {2: 1, 0: 1})
    ]
    assert ordered[0] == ordered[1]


def received(**broadcast):
    return view_digest(average_agreement(), SUMS, "model", {0: 1}, broadcast)


def test_every_broadcast_tensor_is_part_of_the_view():
    control = torch.arange(4.0)
    first = received(control=control, counts=torch.ones(2))
    assert first == received(counts=torch.ones(2), control=control.clone())
    others = [
        received(),
        received(control=control),
        received(control=control, counts=torch.ones(2), more=torch.empty(0)),
        received(control=torch.ones(2), counts=control),
        received(control=control.reshape(2, 2), counts=torch.ones(2)),
        received(control=control.double(), counts=torch.ones(2)),
        received(control=torch.nextafter(control, control + 1), counts=torch.ones(2)),
        view_digest(average_agreement(), SUMS, "model", {0: 1}, {"control:x": control}),
    ]
    assert len({first, *others}) == len(others) + 1
    assert received() == view_digest(average_agreement(), SUMS, "model", {0: 1})


def test_everything_that_a_job_tells_a_client_is_bound():
    """A new field of a job is new influence of the server: bind it in the view, then list it here.

    What else a client computes from is its own: its data, its stored state and its teacher's file,
    whose digest the recipe holds (`method.teacher_sha256`).
    """
    bound_by = {
        "client": "the roster",
        "round": "the purpose of keys",
        "seed": "the digest of the recipe",
        "state": "the view",
        "broadcast": "the view",
        "measure": "the number of the sum, in the purpose of keys",
    }
    assert {field.name for field in fields(TrainJob)} == set(bound_by)


def test_a_parameter_that_comes_as_a_buffer_is_another_model():
    one, two = torch.zeros(2), torch.ones(2)
    models = [ModelState({"a": one, "b": two}, {}), ModelState({"a": one}, {"b": two})]
    models += [ModelState({"b": two}, {"a": one}), ModelState({}, {"a": one, "b": two})]
    models += [ModelState({"a": one}, {"b": one}), ModelState({"a": one}, {})]
    assert len({model_digest(model) for model in models}) == len(models)
    assert model_digest(models[0]) == model_digest(ModelState({"b": two, "a": one}, {}))
