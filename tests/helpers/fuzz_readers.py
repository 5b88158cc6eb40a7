"""Every reader of bytes from outside, each with a valid example: what fuzzing starts from.

A reader takes any bytes and returns, or raises an error of fedbb.
"""

import hashlib
import io
import json
import re
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save as save_safetensors

from fedbb.analysis.label_files import read_label_table
from fedbb.data.csv_table import read_csv
from fedbb.data.images.archive import open_archive
from fedbb.data.images.decode import ImageFormat, decode_image, tolerance
from fedbb.data.parquet import read_parquet
from fedbb.data.registry import load_dataset
from fedbb.data.sets.fashion_mnist import parse_idx
from fedbb.data.teacher_file import read_prototypes, save_teacher, with_teacher
from fedbb.inference import load_model
from fedbb.models.weights import read_weights
from fedbb.partition.partition import Partition, group_owners
from fedbb.recipes.grid import read_grid
from fedbb.recipes.reader import read_recipe
from fedbb.records import ClientState, ModelState
from fedbb.runs.checkpoint import Checkpoint, ClientStateFiles, load_checkpoint, save_checkpoint
from fedbb.runs.folder import RunFolder
from fedbb.runs.runner import run
from helpers.small_grid import write_grid
from helpers.small_run import small_recipe

STATE = ModelState({"weight": torch.arange(6.0).reshape(2, 3)}, {"steps": torch.tensor(7)})
RECIPE = """
[data]
name = "digits"
partition = { kind = "even", clients = 4 }
[method]
name = "fedbb"
options = { beta = 0.99 }
[local]
schedule = { kind = "step", milestones = [2, 5] }
"""
TABLE = "image,patient,site,Edema,Mass\na.png,1,x,0,1\nb.png,2,y,1,0\nc.png,2,y,1,1\n"
ROUNDS = '{"round": 1, "clients": []}\n{"round": 2, "clients": []}\n'


@dataclass(frozen=True)
class Reader:
    """A function of a path, the name of its file, and what makes a valid file in a folder."""

    read: object
    name: str
    example: object
    seal: object = None

    @cache  # noqa: B019, readers live as long as the program
    def content(self):
        """Return the bytes of the valid example."""
        with tempfile.TemporaryDirectory() as folder:
            made = self.example(Path(folder))
            return made if isinstance(made, bytes) else made.read_bytes()

    def __call__(self, content, folder):
        """Read these bytes from a file in the folder."""
        path = folder / self.name
        path.write_bytes(content if self.seal is None else self.seal(content))
        return self.read(path)


def reseal(content):
    """Return a safetensors file with a checksum that holds, as anybody can compute one."""
    blank = re.sub(rb'"sha256":"[0-9a-f]{64}"', b'"sha256":"' + b"0" * 64 + b'"', content, count=1)
    return blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1)


def make_npz(folder):
    images = np.zeros((6, 4, 4), np.uint8)
    names = np.array(["a", "b"])
    np.savez(folder / "x.npz", images=images, labels=np.arange(6) % 2, classes=names)
    return folder / "x.npz"


def make_teacher(folder):
    dataset = load_dataset("npz", path=make_npz(folder))
    text = np.eye(len(dataset.classes))
    save_teacher(folder / "teacher.npz", dataset, np.zeros((len(dataset.train), 2)), text)
    return folder / "teacher.npz"


def read_teacher(path):
    with tempfile.TemporaryDirectory() as folder:
        dataset = load_dataset("npz", path=make_npz(Path(folder)))
    return with_teacher(dataset, str(path)), read_prototypes(str(path), len(dataset.classes))


def make_parquet(folder):
    from pyarrow import parquet, table

    parquet.write_table(table({"a": [1.5, 2.5], "b": ["x", "y"]}), folder / "x.parquet")
    return folder / "x.parquet"


def make_image(kind):
    def make(folder):
        pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, kind)
        return content.getvalue()

    return make


def make_zip(folder):
    with zipfile.ZipFile(folder / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/one.txt", "one")
        archive.writestr("two.txt", "two" * 20)
    return folder / "x.zip"


def make_tar(folder):
    (folder / "one.txt").write_text("one")
    with tarfile.open(folder / "x.tar.gz", "w:gz") as archive:
        archive.add(folder / "one.txt", "a/one.txt")
    return folder / "x.tar.gz"


def make_partition(folder):
    labels = np.arange(6) % 2
    group_owners(np.arange(6) % 3, 3, labels, {"kind": "made by hand"}).save(folder / "x.json")
    return folder / "x.json"


def make_checkpoint(folder):
    save_checkpoint(folder / "x.safetensors", Checkpoint(4, STATE, {0: 4}))
    return folder / "x.safetensors"


def make_client_state(folder):
    ClientStateFiles(folder).save(
        3, 5, ClientState(STATE, {"momentum": {"weight": torch.ones(2, 3)}})
    )
    return next(folder.iterdir())


def make_model(folder):
    list(run(small_recipe(folder, rounds={"number": 1}), folder / "run"))
    return folder / "run" / "final.safetensors"


def make_weights(folder):
    torch.save(STATE.params, folder / "x.pt")
    return folder / "x.pt"


def read_archive(path):
    archive = open_archive(path)
    return list(archive.contents(archive.names()))


def read_image(path):
    with tolerance():
        return decode_image(path.read_bytes(), path, ImageFormat(3, (4, 4)))


def text(content):
    return lambda folder: content.encode()


READERS = {
    "recipe (TOML)": Reader(read_recipe, "x.toml", text(RECIPE)),
    "recipe (JSON)": Reader(
        read_recipe,
        "x.json",
        text(json.dumps({"data": {"name": "digits"}, "method": {"name": "fedbb"}})),
    ),
    "grid": Reader(read_grid, "x.toml", write_grid),
    "table": Reader(read_csv, "x.csv", text(TABLE)),
    "parquet": Reader(read_parquet, "x.parquet", make_parquet),
    "labels": Reader(read_label_table, "x.csv", text(TABLE)),
    "npz": Reader(lambda path: load_dataset("npz", path=path), "x.npz", make_npz),
    "idx": Reader(
        lambda path: parse_idx(path.read_bytes(), "x"),
        "x.idx",
        lambda folder: bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6]),
    ),
    "zip": Reader(read_archive, "x.zip", make_zip),
    "tar": Reader(read_archive, "x.tar.gz", make_tar),
    **{
        f"image ({kind})": Reader(read_image, "x.png", make_image(kind))
        for kind in ("PNG", "JPEG", "TIFF", "BMP", "WEBP")
    },
    "partition": Reader(Partition.load, "x.json", make_partition),
    "checkpoint": Reader(load_checkpoint, "x.safetensors", make_checkpoint, reseal),
    "client state": Reader(
        lambda path: ClientStateFiles(path.parent).load(3, 5),
        "client-000003-round-000005.safetensors",
        make_client_state,
        reseal,
    ),
    "model": Reader(load_model, "x.safetensors", make_model, reseal),
    "weights (torch)": Reader(lambda path: read_weights(str(path)), "x.pt", make_weights),
    "weights (safetensors)": Reader(
        lambda path: read_weights(str(path)),
        "x.safetensors",
        lambda folder: save_safetensors(STATE.params),
    ),
    "teacher": Reader(read_teacher, "x.npz", make_teacher),
    "rounds": Reader(lambda path: RunFolder(path.parent).records(), "rounds.jsonl", text(ROUNDS)),
}


def flower_reader(packed, unpack):
    """Return the reader of a message of Flower; Flower itself reads the bytes before it."""
    from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
    from flwr.proto.recorddict_pb2 import RecordDict as Proto

    def read(path):
        try:
            content = recorddict_from_proto(Proto.FromString(path.read_bytes()))
        except Exception:  # Flower's own refusal
            return None
        return unpack(content)

    content = recorddict_to_proto(packed).SerializeToString()
    return Reader(read, "x.bin", lambda folder: content)


def block_reader(packed, key, unpack):
    """Return the reader of the arrays of one record, in a message whose other records are right."""
    from flwr.app import ConfigRecord, RecordDict

    from fedbb.flower.app.serde import PACKED

    def read(path):
        return unpack(RecordDict({**packed, key: ConfigRecord({PACKED: path.read_bytes()})}))

    return Reader(read, "x.bin", lambda folder: packed[key][PACKED])


def flower_readers():
    """Return the readers of requests to sites and of their replies."""
    from fedbb.evaluation.metrics import Scores
    from fedbb.flower.app import serde
    from fedbb.records import ClientInfo, Task
    from fedbb.rounds.replies import check_measured
    from fedbb.training.config import TrainJob

    outline = serde.Outline("x", Task.MULTICLASS, ("a", "b"), 1, "versions", (1, 4, 4), "uint8")
    request = serde.TrainRequest(TrainJob(0, 1, 0, STATE), 1, "run", None)
    counts = {"label-counts.counts": np.array([3, 2])}
    vector = {name: np.array([0.5, np.nan]) for name in serde.PER_CLASS}
    scores = Scores(5, dict.fromkeys(serde.MACRO, 0.5), vector, {})
    shift, cases = np.zeros(2), np.ones((2, 1, 4), np.int64)
    scoring = serde.pack_scoring(serde.pack_state(STATE), shift, serde.OwnPart("run", 3))
    info = serde.pack_client_info(ClientInfo(0, 5, 0.5), outline, counts)

    def read_info(content):
        measured = check_measured(serde.unpack_measured(content), counts, "x")
        return serde.unpack_client_info(content), measured

    def read_scoring(content):
        own, added = serde.unpack_own_part(content), serde.unpack_shift(content, 2)
        return serde.unpack_state(content), own, added

    asked = serde.pack_train_request(request, serde.pack_state(STATE))
    readers = {
        "client info": flower_reader(info, read_info),
        "train request": flower_reader(asked, serde.unpack_train_request),
        "scoring request": flower_reader(scoring, read_scoring),
        "scores": flower_reader(
            serde.pack_scores({"own_test": scores}),
            lambda content: serde.unpack_scores(content, 2, ("own_test",)),
        ),
        "cases": flower_reader(
            serde.pack_cases(cases), lambda content: serde.unpack_cases(content, cases.shape)
        ),
        **update_readers(request),
    }
    return {f"Flower's {kind}": reader for kind, reader in readers.items()}


def update_readers(request):
    """Return the readers of updates: as they are, compressed, and with tables of outputs."""
    from fedbb.compression import Sparse
    from fedbb.distillation import Distillation
    from fedbb.flower.app import serde
    from fedbb.losses.symmetric import Symmetric
    from fedbb.methods.rhfl import PrivateLoss, SingleTable
    from fedbb.records import ClientInfo, ClientUpdate, ModelFacts, Task
    from fedbb.rounds.replies import Expected, check_reply, expected_steps
    from fedbb.training.config import LocalConfig

    info, config = ClientInfo(0, 5), LocalConfig()
    steps = expected_steps(info.samples, config)
    first = ModelState({"weight": torch.arange(60.0).reshape(5, 12)}, STATE.buffers)
    trained = ModelState({"weight": torch.cos(first.params["weight"])}, STATE.buffers)
    facts = ModelFacts(Task.MULTICLASS, 2, None, public=3)
    tables = SingleTable(Distillation(outputs="probabilities")), PrivateLoss(Symmetric())
    table = torch.tensor([[0.1, 0.9], [0.5, 0.5], [1.0, 0.0]])
    found = {"public-table.table": table, "public-table.number": torch.ones(())}
    found["private-loss.loss"] = torch.tensor(0.7, dtype=torch.float64)

    def readers(name, block=serde.STATE, compression=None, statistics=()):
        message, state = {}, trained
        if compression is not None:
            sent = compression.compress(first, trained, {}, 0, 1)
            message, state = sent.message, sent.state
        values = found if statistics else {}
        update = ClientUpdate(0, state, steps, 3.0, 0.5, 0.1, values, message)
        expected = Expected(
            first, info, config, 1, statistics=statistics, facts=facts, compression=compression
        )
        packed = serde.pack_update(update, request, kept=True, lost=False)

        def read(content):
            return check_reply(serde.unpack_update(content).reply, expected)

        return {
            name: flower_reader(packed, read),
            f"{name}: {block}": block_reader(packed, block, read),
        }

    return {
        **readers("update"),
        **readers("compressed update (signs)", compression=Sparse(0.5, "ternary")),
        **readers("compressed update (coded)", compression=Sparse(0.2, coding="golomb")),
        **readers("compressed update (drawn)", compression=Sparse(0.5, "exact", "drawn", "whole")),
        **readers("update with tables", serde.STATISTICS, statistics=tables),
    }


def secure_readers():
    """Return the readers of secure aggregation's messages and files."""
    from fedbb.flower.app.serde import pack_state, pack_tensors
    from fedbb.secagg.client_secrets import ClientSecrets, load_secrets, save_secrets
    from fedbb.secagg.flower.serde import (
        Attachment,
        pack_answer,
        pack_message,
        read_message,
        unpack_message,
    )
    from fedbb.secagg.masked.client import load_attempt
    from fedbb.secagg.protocol.messages import (
        AttemptId,
        SignedMessage,
        sign_message,
        verify_message,
    )
    from fedbb.secagg.protocol.roster import read_roster, sign_roster
    from helpers.secagg_clients import (
        ENROLMENT,
        identity_of,
        make_roster,
        masked_sum,
        open_transport,
        request,
    )

    roster = make_roster(3)
    attempt = AttemptId("run", 1, 1, "00" * 16)
    message = SignedMessage(attempt, "keys", 1, {"cohort": [0, 1, 2]}, (b"one", b"", b"three"))
    signed = sign_message(message, roster, identity_of(1))
    enrolled = sign_roster(roster, ENROLMENT)

    def make_secrets(folder):
        save_secrets(folder / "x", ClientSecrets.draw(identity_of(1), np.array([5, 7, 1])))
        return folder / "x"

    def make_attempt(folder):
        saved, transport = [], open_transport(3, 4)

        def keep(stage, client, message):
            saved.append(transport.clients[client].save())
            return message

        transport.change = keep
        masked_sum(roster)(request(4), range(3), transport)
        return max(saved, key=len)

    model = Attachment(pack_state(STATE), {0: 1, 2: 1}, pack_tensors({"table": torch.ones(2)}))
    return {
        "secure request on Flower": flower_reader(
            pack_message("masked", signed, model), unpack_message
        ),
        "secure answer on Flower": flower_reader(pack_answer(signed), read_message),
        "secure message": Reader(
            lambda path: verify_message(path.read_bytes(), roster, "keys", 1),
            "x.bin",
            lambda folder: signed,
        ),
        "roster": Reader(
            lambda path: read_roster(path.read_bytes(), ENROLMENT.public),
            "x.bin",
            lambda folder: enrolled,
        ),
        "saved attempt": Reader(
            lambda path: load_attempt(path.read_bytes()),
            "x.bin",
            make_attempt,
        ),
        "secrets": Reader(load_secrets, "x.bin", make_secrets),
    }


def dicom_readers():
    """Return the readers of DICOM files: pixels, and the header alone."""
    from fedbb.data.sets.dicom import DicomFormat, read_header
    from helpers.dicom_files import write

    def make(folder):
        window = {"WindowCenter": 500, "WindowWidth": 400}
        return write(folder / "x.dcm", RescaleSlope=2, RescaleIntercept=-10, **window)

    def read_pixels(path):
        with tolerance():
            return DicomFormat(1, (4, 4)).decode(path.read_bytes(), path)

    keys = ("PatientID", "StudyInstanceUID")
    return {
        "dicom": Reader(read_pixels, "x.dcm", make),
        "dicom header": Reader(lambda path: read_header(path, keys), "x.dcm", make),
    }


def all_readers():
    """Return every reader by name."""
    return {**READERS, **dicom_readers(), **flower_readers(), **secure_readers()}
