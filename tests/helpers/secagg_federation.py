"""A small federation whose clients are parties: five of them, unequal, on toy data."""

from dataclasses import dataclass, field

import numpy as np

from fedbb.records import Task
from fedbb.rounds.policy import RoundPolicy
from fedbb.rounds.round import PlainRound, train_all
from fedbb.runs.checkpoint import ClientStateFiles
from fedbb.secagg.contribution import UNBOUND
from fedbb.secagg.member import Agreement, Member
from fedbb.secagg.round import SecureRound
from fedbb.secagg.simulated import Seat, StatisticsWire, TrainingWire
from fedbb.secagg.statistics import terms_of
from fedbb.secagg.statistics_round import Pledge, Pledging
from fedbb.simulation.inline import Inline
from fedbb.state import snapshot
from fedbb.training.config import LocalConfig
from helpers.secagg_clients import SERVER, identity_of, make_roster, masked_party, masked_sum
from helpers.toy import toy_dataset, toy_network, toy_shares

CLIENTS = 5
PLAN = LocalConfig(batch_size=8, lr=0.1)


@dataclass
class Leaky:
    """A wire on which answers get lost: `lost` holds (stage, client), each as often as it says."""

    wire: object
    lost: list = field(default_factory=list)

    def exchange(self, stage, messages):
        for client, answer in self.wire.exchange(stage, messages):
            if (stage, client) in self.lost:
                self.lost.remove((stage, client))
            else:
                yield client, answer


class Federation:
    """The same clients in the open and in private."""

    def __init__(self, method, task=Task.MULTICLASS, *, infos=None, spoil=None, **options):
        dataset = toy_dataset(task, train=80)
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
        agreement = Agreement(self.terms, method.merge, bounds)
        self.seats = {info.client: self.seat(info, agreement) for info in self.infos}
        self.lost, self.noted = [], []

    def seat(self, info, agreement):
        member, client = Member(info, agreement), info.client
        nonce = bytes([client]) * 32
        own = identity_of(client)
        pledge = Pledge("run", client, self.roster, own, nonce, member.statistics())
        return Seat(member, masked_party(client, self.roster), pledge)

    def gather(self, lost=()):
        """Sum the statistics, and return them and the wire with what clients confirmed."""
        wire = StatisticsWire(self.seats)
        pledging = Pledging("run", self.roster, SERVER, self.terms)
        leaky = Leaky(wire, list(lost))
        return pledging(masked_sum(self.roster), range(CLIENTS), leaky), wire

    def join(self, lost=()):
        statistics, wire = self.gather(lost)

        def reach(number, state):
            trained = TrainingWire(self.engine, self.seats, wire.confirmed, state, number, 0)
            return Leaky(trained, self.lost)

        return SecureRound(
            masked_sum(self.roster, "rounds"),
            reach,
            "run",
            CLIENTS,
            frozenset(statistics.confirmations),
            self.policy,
            self.noted.append,
        )

    def open_join(self):
        return PlainRound(train_all(self.engine), self.method, self.infos, 0)


class Spoiled:
    """An engine whose updates are changed on their way."""

    def __init__(self, engine, change):
        self.engine, self.change, self.state_rounds = engine, change, engine.state_rounds
        self.client_infos = engine.client_infos

    def train(self, jobs):
        return (self.change(update) for update in self.engine.train(jobs))


def everyone():
    return np.arange(CLIENTS)
