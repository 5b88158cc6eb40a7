"""A grid for apps that are not ours: nodes are functions, and messages travel as bytes."""

from collections.abc import Callable, Iterable, Sequence

from flwr.app import Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

Answer = Callable[[Message], Message]


def take_identity(monkeypatch) -> None:
    """Give this process what Flower's messages are signed with."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


def travel(message: Message) -> Message:
    """Return the message as it arrives."""
    sent = message_to_proto(message).SerializeToString()
    return message_from_proto(ProtoMessage.FromString(sent))


class OwnGrid(Grid):
    """Has every node answer at once."""

    def __init__(self, answer: Answer, nodes: Sequence[int]) -> None:
        self.answer = answer
        self.nodes = nodes

    def set_run(self, run: Run) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Run:
        raise NotImplementedError

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return self.nodes

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        return [travel(self.answer(travel(message))) for message in messages]
