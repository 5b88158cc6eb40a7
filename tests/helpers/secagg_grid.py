"""A loopback grid of enrolled sites: messages may get lost, and all of them are kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from fedbb.errors import ReplyError
from fedbb.flower.admin.paths import FederationFolder
from fedbb.flower.admin.templates import make_federation
from fedbb.flower.app.server import serve
from fedbb.flower.app.settings import RunSettings
from fedbb.flower.app.transport import GridTransport
from fedbb.runs.folder import RunFolder
from fedbb.secagg.flower.enrolment import enrol, enrolment_folder
from fedbb.secagg.flower.serde import read_message
from helpers.flower_loopback import FIRST_NODE, Loopback, Node
from helpers.small_run import small_recipe


def private_recipe(folder, clients=3, privacy="masked", **changes):
    """A small recipe whose clients are unequal, of which none may show."""
    values = {"privacy": privacy, "rounds": {"number": 2}, **changes}
    recipe = small_recipe(folder, **values)
    skew = {"kind": "label-skew", "clients": clients, "concentration": 1.0, "min_samples": 2}
    data = recipe.data.model_dump(mode="json") | {"partition": skew}
    return recipe.model_validate(recipe.model_dump(mode="json") | {"data": data})


def enrolled(recipe, folder, sites=3):
    """Return the folder of a federation whose sites are enrolled for a recipe."""
    federation = FederationFolder(folder / "federation")
    make_federation(federation, sites)
    enrol(federation, recipe)
    return federation


@dataclass
class SecureGrid(Loopback):
    """`lost` holds how often the answer of a (stage, client, round) gets lost.

    The statistics are round 0. All that passes is in `seen`.
    """

    lost: dict[tuple[str, int, int], int] = field(default_factory=dict)
    seen: list[Passed] = field(default_factory=list)

    def _work(self, number, parcel):
        message, client = parcel.unpack(), self.nodes[number].config["client"]
        stage, round_number = stage_of(message)
        self.seen.append(Passed("to", stage, client, message.content, whole(parcel)))
        replies = super()._work(number, parcel)
        key = (stage, client, round_number)
        if self.lost.get(key, 0) > 0:
            self.lost[key] -= 1
            return []
        for reply in replies:
            content = None if reply.unpack().has_error() else reply.unpack().content
            self.seen.append(Passed("from", stage, client, content, whole(reply)))
        return replies


@dataclass(frozen=True)
class Passed:
    """A message on its way, as records and as bytes; without records it is an error."""

    way: str
    stage: str
    client: int
    content: object
    data: bytes


def whole(parcel):
    return b"".join(parcel.contents.values())


def stage_of(message):
    """Return the stage and round of a signed message; of another message its kind."""
    if not message.metadata.message_type.endswith(".secure"):
        return message.metadata.message_type, 0
    try:
        return message.content["facts"]["stage"], header_of(message.content)["round"]
    except (KeyError, ValueError, ReplyError):
        return "not signed", 0


def header_of(content):
    """Return the header of a signed message."""
    data = read_message(content)
    return json.loads(data[8 : 8 + int.from_bytes(data[4:8], "little")])


def open_grid(recipe, federation, **config):
    """Return a grid of the sites that have a folder."""
    nodes = {
        FIRST_NODE + place: Node({**site.node_config(), **config})
        for place, site in enumerate(federation.sites())
    }
    return SecureGrid(nodes, {"recipe": recipe.model_dump_json()})


def private_run(recipe, path, federation, grid=None, **settings):
    """Run a private recipe; return its summary and the records."""
    records = list(start(recipe, path, federation, grid, **settings))
    return RunFolder(path).read_json("summary.json"), records


def start(recipe, path, federation, grid=None, **settings):
    """Return a run under way."""
    grid = grid or open_grid(recipe, federation)
    keys = {"wait": 0.0, "keys": enrolment_folder(federation), **settings}
    return serve(GridTransport(grid, poll=0.01), RunSettings(recipe, path, **keys))
