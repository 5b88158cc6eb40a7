"""A grid in this process: the real client app, on messages that really become bytes.

Nodes can be away, and what they answer can be dropped, spoiled, held back or doubled.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.serde import context_from_proto, context_to_proto
from flwr.proto.message_pb2 import Context as ProtoContext
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from fedbb.evaluation.metrics import Scorer
from fedbb.flower.app.client import app
from fedbb.flower.app.server import serve
from fedbb.flower.app.settings import RunSettings
from fedbb.flower.app.transport import GridTransport
from fedbb.recipes.check import check_recipe
from fedbb.records import ClientFailure
from fedbb.rounds.loop import Start, run_rounds
from fedbb.rounds.round import PlainRound, RoundReplies
from fedbb.rounds.server_steps import open_server_steps
from fedbb.runs.federation import prepare
from fedbb.runs.folder import RunFolder
from fedbb.runs.runtime import local_config_of, network_of
from fedbb.simulation.inline import Inline
from fedbb.state import snapshot

FIRST_NODE = 1000

Fault = Callable[[Message], list[Message]]


def take_identity(monkeypatch):
    """Give this process what Flower's messages are signed with."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@dataclass
class Parcel:
    """A message as bytes."""

    number: str
    contents: dict[str, bytes]

    @classmethod
    def pack(cls, message):
        message.metadata.__dict__["_message_id"] = message.object_id
        objects = get_all_nested_objects(message)
        return cls(message.object_id, {name: part.deflate() for name, part in objects.items()})

    def unpack(self):
        message = inflate_object_from_contents(self.number, dict(self.contents))
        message.metadata.__dict__["_message_id"] = self.number
        return message


@dataclass
class Node:
    """A site's node: its settings, what it keeps, and since when it is connected."""

    config: dict
    context: bytes = b""
    joined: str = "first"
    connected: bool = True


@dataclass
class Loopback(Grid):
    """A grid whose nodes answer when they are asked for their answer."""

    nodes: dict[int, Node]
    run_config: dict
    faults: dict[tuple[int, int], Fault] = field(default_factory=dict)
    spoil: Callable[[Parcel], Parcel] | None = None
    run_id: int | None = None  # None: another with every message, so that no site stays open
    asked: list[tuple[str, int, int]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    _sent: dict[str, tuple[int, Parcel]] = field(default_factory=dict)
    _ready: dict[str, list[Parcel]] = field(default_factory=dict)
    _series: count = field(default_factory=lambda: count(1))

    def set_run(self, run):
        raise NotImplementedError

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError

    def get_node_ids(self):
        return [number for number, node in self.nodes.items() if node.connected]

    def get_nodes(self):
        return [
            NodeInfo(node_id=number, last_activated_at=self.nodes[number].joined)
            for number in self.get_node_ids()
        ]

    def push_messages(self, messages: Iterable[Message]):
        for message in messages:
            parcel = Parcel.pack(message)
            self.sizes.append(sum(len(part) for part in parcel.contents.values()))
            self._sent[parcel.number] = (message.metadata.dst_node_id, parcel)
            yield parcel.number

    def pull_messages(self, message_ids):
        for number in message_ids:
            if number in self._sent:
                node, parcel = self._sent.pop(number)
                self._ready[number] = [*self._ready.get(number, []), *self._work(node, parcel)]
            for parcel in self._ready.pop(number, []):
                yield parcel.unpack()

    def _work(self, number, parcel):
        node, message = self.nodes[number], parcel.unpack()
        kind, round_number = message.metadata.message_type, 0
        if kind == "train":
            round_number = message.content["facts"]["round"]
        client = node.config.get("client", number)
        self.asked.append((kind, client, round_number))
        if not node.connected:
            error = Error(ErrorCode.NODE_UNAVAILABLE, "gone")
            return [Parcel.pack(Message(error, reply_to=message))]
        reply = self._answer(number, node, message)
        fault = self.faults.get((client, round_number))
        replies = [reply] if fault is None else fault(reply)
        parcels = [Parcel.pack(each) for each in replies]
        return [self.spoil(each) if self.spoil else each for each in parcels]

    def _answer(self, number, node, message):
        run = next(self._series) if self.run_id is None else self.run_id
        context = Context(run, number, node.config, RecordDict(), self.run_config)
        if node.context:
            context.state = context_from_proto(ProtoContext.FromString(node.context)).state
        reply = app(message, context)
        node.context = context_to_proto(context).SerializeToString()
        return reply

    def hold_back(self, message):
        """A fault: the answer is kept until it is asked for once more."""
        parcel = Parcel.pack(message)
        self._ready.setdefault(message.metadata.reply_to_message_id, []).append(parcel)
        return []


def drop(message):
    """A fault: the answer is lost."""
    return []


def double(message):
    """A fault: the answer comes twice."""
    return [message, message]


def changing(change):
    """A fault: what is sent has been changed by this function of its content."""

    def fault(message):
        change(message.content)
        return [message]

    return fault


def open_loopback(recipe, sites=3, **config):
    """Return a grid of this number of sites that follow a recipe."""
    nodes = {FIRST_NODE + k: Node({"client": k, **config}) for k in range(sites)}
    return Loopback(nodes, {"recipe": recipe.model_dump_json()})


def flower_run(recipe, path, grid=None, **settings):
    """Run a recipe on a loopback grid; return its summary and the records."""
    grid = grid or open_loopback(recipe)
    chosen = RunSettings(recipe, path, **{"wait": 5.0, **settings})
    records = list(serve(GridTransport(grid, poll=0.01), chosen))
    return RunFolder(path).read_json("summary.json"), records


def inline_without(recipe, missing=()):
    """Return the states after each round of an inline run in which some (client, round) are away.

    Who is away neither counts nor remembers the round.
    """
    method, plan = check_recipe(recipe), local_config_of(recipe)
    federation = prepare(recipe)
    model = network_of(recipe, method, federation.dataset)
    engine = Inline(model, federation.clients, method, plan)

    def ask(jobs, attempt):
        there = [job for job in jobs if (job.client, job.round) not in missing]
        away = tuple(ClientFailure(job.client, "away") for job in jobs if job not in there)
        return RoundReplies(tuple(job.client for job in there), engine.train(there), away)

    join = PlainRound(
        ask,
        method,
        engine.client_infos(),
        recipe.seed,
        recipe.defense,
        server_steps=open_server_steps(engine, recipe.seed),
    )
    scorer = Scorer(model, federation.dataset, federation.scored, recipe.evaluation.batch_size)
    start = Start(snapshot(model), seed=recipe.seed)
    return [done.state for done in run_rounds(join, start, recipe.rounds, scorer)]


def with_defense(recipe, **defense):
    """Return the recipe with some of its defense changed."""
    return recipe.model_copy(update={"defense": replace(recipe.defense, **defense)})
