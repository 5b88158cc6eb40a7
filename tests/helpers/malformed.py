"""A small data set for every reader, whole or with one thing wrong."""

import gzip
import io
import shutil
import struct
import tarfile
import warnings
import zipfile
import zlib

import numpy as np
import pandas
import pyarrow
from PIL import Image

from fedbb.data.sets.nih_cxr14 import CLASSES
from helpers import dicom_files
from helpers.hugging_face import png, save_split

CASES = (
    "missing column",
    "unreadable image",
    "mixed sizes",
    "wrong rank",
    "duplicate ids",
    "NaN",
    "zip bomb",
    "pickled objects",
    "path outside",
)
ROWS = 12
LABELS = np.arange(ROWS) % 2
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (ROWS, 6, 8), dtype=np.uint8)
BOMB = np.zeros(2**22, np.uint8)
"""Packs to about a thousandth."""


def huge_png():
    """A PNG of a few bytes that declares 2.5 billion pixels."""

    def chunk(kind, content):
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 0, 0, 0, 0)
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
    return start + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


def frames():
    """A TIFF file of three pages."""
    stream = io.BytesIO()
    pages = [Image.fromarray(image) for image in IMAGES[:3]]
    pages[0].save(stream, "tiff", save_all=True, append_images=pages[1:])
    return stream.getvalue()


def image_file(case, number):
    """The content of an image file; that of number 4 has what the case says."""
    if number == 4 and case == "wrong rank":
        return frames()
    if number == 4 and case == "unreadable image":
        return b"no image"
    if number == 4 and case == "zip bomb":
        return huge_png()
    if number == 4 and case == "NaN":
        stream = io.BytesIO()
        Image.fromarray(np.full((6, 8), np.nan, np.float32)).save(stream, "tiff")
        return stream.getvalue()
    pixels = IMAGES[number]
    return png(pixels[:4] if number == 4 and case == "mixed sizes" else pixels)


def arrays(folder, case, names=("images", "labels"), **more):
    """Named arrays with one thing wrong, to be saved in an .npz file or as .npy files."""
    images, labels = names
    made = {images: IMAGES, labels: LABELS, "site": LABELS, **more}
    match case:
        case "missing column":
            del made["site"]
        case "mixed sizes":
            made |= {"test_images": IMAGES[:4, :3], "test_labels": LABELS[:4]}
        case "wrong rank":
            made[images] = IMAGES[:, 0, 0]
        case "NaN":
            made[images] = np.where(np.arange(ROWS) == 4, np.nan, 0.5)[:, None, None] * IMAGES
        case "zip bomb":
            made["more"] = BOMB
        case "pickled objects":
            made["site"] = np.array([{}] * ROWS)
    return made


def npz(folder, case):
    path = folder / "mine.npz"
    np.savez_compressed(path, **arrays(folder, case))
    _spoil_archive(path, case)
    return path, {"group": "site"}


def npy_folder(folder, case):
    path = folder / "mine"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for name, array in arrays(folder, case).items():
        np.save(path / name, array)
    _cut(path / "images.npy", case)
    return path, {"group": "site"}


def medmnist(folder, case):
    path = folder / "mine.npz"
    made = {}
    for part in ("train", "val", "test"):
        made |= {f"{part}_images": IMAGES, f"{part}_labels": LABELS[:, None].astype(np.uint8)}
    match case:
        case "missing column":
            del made["val_labels"]
        case "mixed sizes":
            made["test_images"] = IMAGES[:, :3]
        case "wrong rank":
            made["train_images"] = IMAGES[:, 0]
        case "NaN":
            made["train_images"] = arrays(folder, case)["images"]
        case "zip bomb":
            made["more"] = BOMB
        case "pickled objects":
            made["train_labels"] = np.array([[None]] * ROWS)
    np.savez_compressed(path, **made)
    _spoil_archive(path, case)
    return path, {}


def class_files(case):
    """Names and contents of images in folders by class."""
    ending = "tiff" if case in ("NaN", "wrong rank") else "png"
    names = [f"{'cat' if n % 2 else 'dog'}/{n}.{ending}" for n in range(ROWS)]
    if case == "missing column":
        names[4] = "4.png"
    return {name: image_file(case, n) for n, name in enumerate(names)}


def class_folders(folder, case):
    path = folder / "pets"
    shutil.rmtree(path, ignore_errors=True)
    for name, content in class_files(case).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path, {}


def class_zip(folder, case):
    path = folder / "pets.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in class_files(case if case != "zip bomb" else None).items():
            bomb = case == "zip bomb" and name == "dog/4.png"
            archive.writestr(name, bytes(BOMB) if bomb else content)
    if case == "duplicate ids":
        _add_member(path, "dog/4.png", png(IMAGES[4]))
    if case == "path outside":
        _add_member(path, "../dog/13.png", png(IMAGES[4]))
    return path, {}


def class_tar(folder, case):
    path = folder / "pets.tar.gz"
    files = list(class_files(case if case != "zip bomb" else None).items())
    if case == "duplicate ids":
        files.append(files[4])
    if case == "path outside":
        files.append(("../dog/13.png", files[4][1]))
    with tarfile.open(path, "w:gz") as archive:
        for name, held in files:
            content = bytes(BOMB) if case == "zip bomb" and name == "dog/4.png" else held
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path, {}


def table(folder, case):
    path = folder / "mine.csv"
    (folder / "films").mkdir(exist_ok=True)
    lines = ["image,mass,site" if case != "missing column" else "image,mass,ward"]
    for number in range(ROWS):
        (folder / "films" / f"{number}.png").write_bytes(image_file(case, number))
        lines.append(f"{_name(case, number, 'png')},{LABELS[number]},A")
    if case == "NaN":
        lines[5] = "4.png,nan,A"
        (folder / "films" / "4.png").write_bytes(png(IMAGES[4]))
    path.write_text("\n".join(lines) + "\n")
    return path, {"images": str(folder / "films"), "label_columns": ["mass"], "columns": ["site"]}


def dicom(folder, case):
    path = folder / "mine.csv"
    lines = ["image,kind,site" if case != "missing column" else "image,kind,ward"]
    for number in range(ROWS):
        file = folder / "films" / f"{number}.dcm"
        pixels, elements = dicom_files.RAMP + number, {}
        if number == 4:
            pixels = pixels[:4] if case == "mixed sizes" else pixels
            elements = {
                "NaN": {"RescaleSlope": "nan", "RescaleIntercept": "0"},
                "wrong rank": {"NumberOfFrames": 3, "PixelData": pixels.tobytes() * 3},
                "zip bomb": {"Rows": 60_000, "Columns": 60_000},
            }.get(case, {})
        dicom_files.write(file, pixels, patient=f"P{number // 2}", **elements)
        lines.append(f"{_name(case, number, 'dcm')},{'mass' if number % 3 else 'none'},A")
    if case == "unreadable image":
        (folder / "films" / "4.dcm").write_bytes(b"no film" * 50)
    path.write_text("\n".join(lines) + "\n")
    options = {"images": str(folder / "films"), "class_column": "kind", "columns": ["site"]}
    return path, options


def hugging_face(folder, case):
    path = folder / "pets"
    names = {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    held = [{"bytes": image_file(case, n), "path": None} for n in range(ROWS)]
    features = {"image": {"_type": "Image"}, **names}
    if case == "NaN":
        rows = IMAGES[:, 0].astype(np.float32)
        rows[4] = np.nan
        held = [row.tolist() for row in rows]
        features["image"] = {"feature": {"dtype": "float32", "_type": "Value"}, "_type": "List"}
    columns = {"image": held, "label": LABELS, "site": LABELS}
    if case == "missing column":
        del columns["site"]
    shutil.rmtree(path, ignore_errors=True)
    save_split(path, columns, features)
    file = path / "data-00000-of-00001.arrow"
    if case == "zip bomb":
        table = pyarrow.table({**columns, "image": [bytes(2**18)] * ROWS})
        options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
        with pyarrow.ipc.new_stream(file, table.schema, options=options) as writer:
            writer.write_table(table)
    if case == "path outside":
        (path / "state.json").write_text('{"_data_files": [{"filename": "../data.arrow"}]}')
    return path, {"columns": ["site"]}


def frame(case):
    rows = {
        "id": [f"r{n}" for n in range(ROWS)],
        "age": np.arange(ROWS) + 20.0,
        "site": ["A", "B"] * (ROWS // 2),
        "outcome": np.where(LABELS, "worse", "better"),
    }
    made = pandas.DataFrame(rows)
    if case == "missing column":
        made = made.drop(columns="site")
    if case == "duplicate ids":
        made.loc[4, "id"] = "r3"
    if case == "NaN":
        made.loc[4, "age"] = np.nan
    return made


FEATURES = {"class_column": "outcome", "columns": ["site"], "id_column": "id"}


def features_csv(folder, case):
    path = folder / "trial.csv.gz"
    text = frame(case).to_csv(index=False, na_rep="nan")
    lines = text.splitlines(keepends=True)
    if case == "wrong rank":
        lines[5] = lines[5].strip() + ",1\n"
    if case == "zip bomb":
        lines += ["r,1.0,A,better\n"] * 200_000
    content = gzip.compress("".join(lines).encode())
    path.write_bytes(content[:-20] if case == "unreadable image" else content)
    return path, FEATURES


def features_parquet(folder, case):
    path = folder / "trial.parquet"
    made = frame(case)
    if case == "zip bomb":
        made = pandas.DataFrame({name: [made[name][0]] * 3_000_000 for name in made})
    if case == "wrong rank":
        made["age"] = [[age, age] for age in made["age"]]
    made.to_parquet(path)
    _cut(path, case)
    return path, FEATURES


def features_npz(folder, case):
    path = folder / "trial.npz"
    made = {name: values.to_numpy() for name, values in frame(case).items()}
    matrix = np.stack([made.pop("age"), np.arange(ROWS)], axis=1)
    columns = {name: np.array(values.tolist()) for name, values in made.items()}
    match case:
        case "wrong rank":
            matrix = matrix[:, 0]
        case "zip bomb":
            columns["more"] = BOMB
        case "pickled objects":
            columns["site"] = np.array([{}] * ROWS)
    if case == "mixed sizes":
        columns["site"] = columns["site"][1:]
    np.savez_compressed(path, features=matrix, **columns)
    _spoil_archive(path, case)
    return path, FEATURES


def nih_table(folder, case):
    path = folder / "Data_Entry_2017.csv"
    (folder / "images").mkdir(exist_ok=True)
    head = "Image Index,Finding Labels,Patient ID"
    lines = [head if case != "missing column" else head.replace("Patient ID", "Patient")]
    for number in range(ROWS):
        (folder / "images" / f"{number}.png").write_bytes(image_file(case, number))
        lines.append(f"{_name(case, number, 'png')},{'Mass' if number % 2 else 'nan'},{number}")
    if case != "NaN":
        lines = [line.replace(",nan,", ",No Finding,") for line in lines]
    path.write_text("\n".join(lines) + "\n")
    return path, {"size": 8}


def nih_arrays(folder, case):
    path = folder / "films.npz"
    made = arrays(folder, case, labels=np.zeros((ROWS, len(CLASSES))))
    for name in ("site", "test_images", "test_labels"):
        made.pop(name, None)
    made |= {
        "patient": np.arange(ROWS),
        "names": np.array([f"{n}.png" for n in range(ROWS)]),
        "classes": np.array(CLASSES),
    }
    match case:
        case "missing column":
            del made["patient"]
        case "duplicate ids":
            made["names"][4] = "3.png"
        case "NaN":
            made["images"] = made["images"].astype(np.float32)
        case "pickled objects":
            made["patient"] = np.array([{}] * ROWS)
    np.savez_compressed(path, **made)
    _spoil_archive(path, case)
    return path, {}


def chexpert(folder, case):
    path = folder / "films"
    names = "Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,Consolidation"
    names += ",Pneumonia,Atelectasis,Pneumothorax,Fracture"
    lines = [f"Path,Frontal/Lateral,{names}"]
    if case == "missing column":
        lines[0] = lines[0].replace(",Edema,", ",Oedema,")
    for number in range(ROWS):
        name = f"train/patient{3 if case == 'duplicate ids' and number == 4 else number:05}/1.jpg"
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(image_file(case, number))
        name = "../4.jpg" if case == "path outside" and number == 4 else name
        mark = "NaN" if case == "NaN" and number == 4 else "1.0"
        lines.append(f"CheXpert/{name},Frontal,{mark}" + 9 * ",")
    (path / "train.csv").write_text("\n".join(lines) + "\n")
    return path, {"size": 8}


def tiny_imagenet(folder, case):
    path = folder / "tiny"
    images = {f"train/n0{n % 2}/images/{n}.JPEG": image_file(case, n) for n in range(ROWS)}
    images |= {f"val/images/v{n}.JPEG": png(IMAGES[n]) for n in range(4)}
    for name, content in images.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    lines = [f"v{n}.JPEG\tn0{n % 2}\t0" for n in range(4)]
    changed = {
        "missing column": "v2.JPEG",
        "duplicate ids": "v1.JPEG\tn00\t0",
        "path outside": "../../../v2.JPEG\tn00\t0",
    }
    lines[2] = changed.get(case, lines[2])
    (path / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    (path / "wnids.txt").write_text("n00\nn01\n")
    return path, {}


READERS = {
    "npz": npz,
    "npz (folder)": npy_folder,
    "medmnist": medmnist,
    "folder": class_folders,
    "folder (zip)": class_zip,
    "folder (tar)": class_tar,
    "table": table,
    "dicom": dicom,
    "hf": hugging_face,
    "features (csv)": features_csv,
    "features (parquet)": features_parquet,
    "features (npz)": features_npz,
    "nih-cxr14": nih_table,
    "nih-cxr14 (npz)": nih_arrays,
    "chexpert": chexpert,
    "tiny-imagenet": tiny_imagenet,
}


def _name(case, number, ending):
    """The name of a file in a table."""
    if number == 4 and case == "duplicate ids":
        number = 3
    outside = "../" if number == 4 and case == "path outside" else ""
    return f"{outside}{number}.{ending}"


def _array_file(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def _cut(path, case):
    """Take the end of a file away if it is to be unreadable."""
    if case == "unreadable image":
        path.write_bytes(path.read_bytes()[:-40])


def _spoil_archive(path, case):
    _cut(path, case)
    if case == "path outside":
        _add_member(path, "../ward.npy", _array_file(LABELS))


def _add_member(path, name, content):
    """Add a member to a zip file, also one of a name that is there."""
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr(name, content)
