"""A small private federation: five unequal clients on toy data."""

from dataclasses import dataclass, field, replace

import numpy as np

from fedbb.records import Task
from fedbb.rounds.round import PlainRound, RoundPolicy, train_all
from fedbb.rounds.server_steps import NO_SERVER_STEPS, measure_counts, open_server_steps
from fedbb.runs.checkpoint import ClientStateFiles
from fedbb.secagg.cbr import UNBOUND, Agreement, Contributor, terms_of
from fedbb.secagg.client_secrets import ClientSecrets
from fedbb.secagg.round import SecureRound, StatisticsClient, StatisticsRound
from fedbb.secagg.simulated import SimulatedClient, SimulatedTransport, round_training
from fedbb.secagg.view import model_digest, view_digest
from fedbb.simulation.inline import Inline
from fedbb.state import snapshot
from fedbb.training.config import LocalConfig
from helpers.secagg_clients import SERVER, identity_of, make_roster, masked_client, masked_sum
from helpers.teachers import taught
from helpers.toy import toy_dataset, toy_network, toy_shares

CLIENTS = 5
PLAN = LocalConfig(batch_size=8, lr=0.1)


@dataclass
class LossyTransport:
    """A transport that loses answers: `lost` holds (stage, client), once for each loss."""

    transport: object
    lost: list = field(default_factory=list)

    def exchange(self, stage, messages):
        for client, answer in self.transport.exchange(stage, messages):
            if (stage, client) in self.lost:
                self.lost.remove((stage, client))
            else:
                yield client, answer


class Federation:
    """The same clients in the open and in private."""

    def __init__(self, method, task=Task.MULTICLASS, *, infos=None, spoil=None, **options):
        dataset = taught(toy_dataset(task, train=80), method)
        bounds = options.pop("bounds", UNBOUND)
        store = options.pop("folder", None)
        self.policy = options.pop("policy", RoundPolicy())
        self.method, network = method, toy_network(projection=method.needs.projection)
        self.first = snapshot(network)
        shares = toy_shares(dataset, CLIENTS)
        stores = () if store is None else (ClientStateFiles(store),)
        self.engine = Inline(network, shares, method, options.pop("plan", PLAN), *stores)
        if spoil is not None:
            self.engine = Spoiled(self.engine, spoil)
        self.infos = infos or self.engine.client_infos()
        self.terms = terms_of(method.weighting, CLIENTS)
        self.roster = make_roster(CLIENTS, **options)
        self.agreement = agreement = Agreement(self.terms, method.merge, bounds)
        self.clients = {info.client: self.client(info, agreement) for info in self.infos}
        self.lost, self.lost_later, self.recorded, self.measured = [], [], [], []

    def client(self, info, agreement):
        measured = measure_counts(self.method, self.engine.clients[info.client].counts)
        contributor, number = Contributor(info, agreement, measured), info.client
        nonce, own = bytes([number]) * 32, identity_of(number)
        secrets = ClientSecrets(own, nonce, contributor.statistics())
        sums = masked_client(number, self.roster)
        statistics = StatisticsClient("run", number, self.roster, secrets, sums.journal)
        return SimulatedClient(contributor, sums, statistics)

    def sum_statistics(self, lost=()):
        like = self.clients[0].contributor.measured
        statistics = StatisticsRound("run", self.roster, SERVER, self.agreement, like=like)
        transport = LossyTransport(SimulatedTransport(self.clients), list(lost))
        return statistics(masked_sum(self.roster), range(CLIENTS), transport)

    def secure_round(self, lost=()):
        statistics = self.sum_statistics(lost)

        steps = open_server_steps(self.engine, 0) if self.method.server else NO_SERVER_STEPS
        steps = replace(steps, measured=statistics.measured)

        def open_transport(work):
            training = round_training(self.engine, work, 0, steps)
            lost = self.lost_later if work.measure else self.lost
            return LossyTransport(SimulatedTransport(self.clients, training), lost)

        return SecureRound(
            masked_sum(self.roster, "rounds"),
            open_transport,
            "run",
            CLIENTS,
            frozenset(statistics.confirmations),
            self.policy,
            self.recorded.append,
            lambda *seen: self.measured.append(seen),
            lambda work: self.view(statistics.sums, work),
            statistics.sums.samples,
            steps,
            self.method.statistics,
        )

    def view(self, sums, work):
        rounds = {} if work.measure else self.engine.state_rounds
        return view_digest(self.agreement, sums, model_digest(work.state), rounds, work.broadcast)

    def plain_round(self):
        steps = open_server_steps(self.engine, 0) if self.method.server else NO_SERVER_STEPS
        asked = train_all(self.engine)
        return PlainRound(asked, self.method, self.infos, 0, server_steps=steps)


class Spoiled:
    """An engine whose updates are changed on their way."""

    def __init__(self, engine, change):
        self.engine, self.change, self.state_rounds = engine, change, engine.state_rounds
        self.client_infos, self.clients = engine.client_infos, engine.clients
        self.method = engine.method

    def train(self, jobs):
        return (self.change(update) for update in self.engine.train(jobs))


def everyone():
    return np.arange(CLIENTS)
