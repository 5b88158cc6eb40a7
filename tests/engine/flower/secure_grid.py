"""A loopback grid of enrolled sites: letters can get lost, and all that passes is kept."""

from dataclasses import dataclass, field

from engine.flower.loopback import FIRST_NODE, Loopback, Node
from fedbb.engine.flower.layout import FederationFolder
from fedbb.engine.flower.post import Post
from fedbb.engine.flower.secure_enrolment import enrol, enrolment_folder
from fedbb.engine.flower.server import serve
from fedbb.engine.flower.settings import RunSettings
from fedbb.engine.flower.template_files import make_federation
from fedbb.runs.folder import RunFolder
from small_run import small_recipe

QUERIES = ("commit", "keys", "shares", "agree", "unmask", "told")


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
    """`lost` holds how often the answer of a (stage, client) gets lost; `deaf`: its message."""

    lost: dict[tuple[str, int], int] = field(default_factory=dict)
    deaf: dict[tuple[str, int], int] = field(default_factory=dict)
    seen: list[tuple[str, str, int, bytes]] = field(default_factory=list)

    def _work(self, number, parcel):
        message, client = parcel.unpack(), self.nodes[number].config["client"]
        stage = stage_of(message)
        self.seen.append(("to", stage, client, b"".join(parcel.contents.values())))
        if self._strikes(self.deaf, stage, client):
            return []
        replies = super()._work(number, parcel)
        if self._strikes(self.lost, stage, client):
            return []
        self.seen += [("from", stage, client, b"".join(r.contents.values())) for r in replies]
        return replies

    def _strikes(self, faults, stage, client):
        left = faults.get((stage, client), 0)
        faults[stage, client] = max(0, left - 1)
        return left > 0


def stage_of(message):
    """Return a letter's stage, or the kind of a message that carries none."""
    if message.metadata.message_type.endswith(".secure"):
        return message.content["facts"]["stage"]
    return message.metadata.message_type


def open_grid(recipe, federation, **config):
    """Return a grid of the sites that have a folder."""
    nodes = {
        FIRST_NODE + place: Node({**site.node_config(), **config})
        for place, site in enumerate(federation.sites())
    }
    return SecureGrid(nodes, {"recipe": recipe.model_dump_json()})


def private_run(recipe, path, federation, grid=None, **settings):
    """Run a private recipe; return its summary and the records."""
    grid = grid or open_grid(recipe, federation)
    keys = {"wait": 5.0, "keys": enrolment_folder(federation), **settings}
    records = list(serve(Post(grid, poll=0.01), RunSettings(recipe, path, **keys)))
    return RunFolder(path).read_json("summary.json"), records
