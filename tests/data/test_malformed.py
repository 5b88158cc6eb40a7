"""Every reader against every kind of malformed file."""

import json

import pytest

from fedbb.data import array_files, mapped
from helpers.commands import fedbb as call
from helpers.malformed import CASES, READERS
from helpers.sealed import SEALED, cifar10

IN_ARRAYS = "rows of arrays have no ids and no file names"
NO_ARRAYS = "holds no NumPy arrays"
SCALED = "images are always scaled to one size"
NO_FILES = "names no files"
EXCEPT = {
    ("npz", "duplicate ids"): IN_ARRAYS,
    ("npz (folder)", "duplicate ids"): IN_ARRAYS,
    ("npz (folder)", "zip bomb"): "is not packed",
    ("npz (folder)", "path outside"): "a link may lead anywhere; the owner of the folder made it",
    ("medmnist", "duplicate ids"): IN_ARRAYS,
    ("folder", "duplicate ids"): "a folder has a name once",
    ("folder", "pickled objects"): NO_ARRAYS,
    ("folder", "path outside"): "a link may lead anywhere; the owner of the folder made it",
    ("folder (zip)", "pickled objects"): NO_ARRAYS,
    ("folder (tar)", "pickled objects"): NO_ARRAYS,
    ("table", "pickled objects"): NO_ARRAYS,
    ("dicom", "pickled objects"): NO_ARRAYS,
    ("hf", "duplicate ids"): "the format has no ids",
    ("hf", "pickled objects"): NO_ARRAYS,
    ("features (csv)", "mixed sizes"): "a line of another length is the case of a wrong rank",
    ("features (csv)", "pickled objects"): NO_ARRAYS,
    ("features (csv)", "path outside"): NO_FILES,
    ("features (parquet)", "mixed sizes"): "the format gives all columns one length",
    ("features (parquet)", "pickled objects"): NO_ARRAYS,
    ("features (parquet)", "path outside"): NO_FILES,
    ("nih-cxr14", "mixed sizes"): SCALED,
    ("nih-cxr14", "pickled objects"): NO_ARRAYS,
    ("nih-cxr14 (npz)", "mixed sizes"): "one array has one size",
    ("chexpert", "mixed sizes"): SCALED,
    ("chexpert", "pickled objects"): NO_ARRAYS,
    ("tiny-imagenet", "pickled objects"): NO_ARRAYS,
}
"""Cases that a format cannot have, and why."""

CUT = "mine.npz as .npz: File is not a zip file"
PIXELS = "Image size (2500000000 pixels) exceeds limit"
SIZES = "has 4 × 8 pixels, the first one 6 × 8; set the option size"
FRAMES = "it has 3 frames, and an image is one; extract a frame first"
RANK = "images has shape (12,); allowed: (N, height, width),"
OBJECTS = "holds Python objects, and reading them would run code"
ARRAY_BOMB = "array 'more' has 4,165 bytes and unpacks to 4,194,432, as a zip bomb does"
FRACTIONS = "cannot be read: it holds fractions"
MISSING = "column age: the value is missing; set missing to mean, median or zero"
MESSAGES = {
    "npz": [
        "mine.npz: no column 'site' to hold out by; the data has no columns",
        CUT,
        "mine.npz: mine trains on uint8 inputs of shape (1, 6, 8) but tests on uint8 of (1, 3, 8)",
        f"mine.npz: {RANK}",
        None,
        "mine.npz input 4 holds NaN or infinity",
        f"mine.npz: {ARRAY_BOMB}",
        f"mine.npz as .npz: array 'site' {OBJECTS}",
        "mine.npz: array '../ward' is outside of the file",
    ],
    "npz (folder)": [
        "mine: no column 'site' to hold out by",
        "mine/images.npy as .npy: array 'images' has 536 bytes, and its header promises 576",
        "mine: mine trains on uint8 inputs of shape (1, 6, 8) but tests on uint8 of (1, 3, 8)",
        f"mine/images.npy: {RANK}",
        None,
        "mine input 4 holds NaN or infinity",
        None,
        f"mine/site.npy as .npy: array 'site' {OBJECTS}",
        None,
    ],
    "medmnist": [
        "mine.npz: no array 'val_labels'; did you mean train_labels?",
        CUT,
        "mine.npz: mine trains on uint8 inputs of shape (1, 6, 8) but tests on uint8 of (1, 3, 8)",
        "mine.npz: train_images has shape (12, 8); MedMNIST has (N, height, width)",
        None,
        "mine.npz: mine train input 4 holds NaN or infinity",
        f"mine.npz: {ARRAY_BOMB}",
        f"mine.npz as .npz: array 'train_labels' {OBJECTS}",
        "mine.npz: array '../ward' is outside of the file",
    ],
    "folder": [
        "pets: 4.png is in no class folder",
        "pets/dog/4.png cannot be read: cannot identify image file",
        f"pets/dog/4.png {SIZES}",
        f"pets/dog/4.tiff cannot be read: {FRAMES}",
        None,
        f"pets/dog/4.tiff {FRACTIONS}",
        f"pets/dog/4.png cannot be read: {PIXELS}",
        None,
        None,
    ],
    "folder (zip)": [
        "pets.zip: 4.png is in no class folder",
        "pets.zip/dog/4.png cannot be read: it is not an image",
        f"pets.zip/dog/4.png {SIZES}",
        f"pets.zip/dog/4.tiff cannot be read: {FRAMES}",
        "pets.zip: dog/4.png is in the archive twice",
        f"pets.zip/dog/4.tiff {FRACTIONS}",
        "pets.zip: dog/4.png has 4,080 bytes and unpacks to 4,194,304, as a zip bomb does",
        None,
        "pets.zip: ../dog/13.png is outside of the archive",
    ],
    "folder (tar)": [
        "pets.tar.gz: 4.png is in no class folder",
        "pets.tar.gz/dog/4.png cannot be read: it is not an image",
        f"pets.tar.gz/dog/4.png {SIZES}",
        f"pets.tar.gz/dog/4.tiff cannot be read: {FRAMES}",
        "pets.tar.gz: dog/4.png is in the archive twice",
        f"pets.tar.gz/dog/4.tiff {FRACTIONS}",
        "bytes and unpacks to 4,194,304, as a zip bomb does",
        None,
        "pets.tar.gz: ../dog/13.png is outside of the archive",
    ],
    "table": [
        "mine.csv: no column 'site'; known: image, mass, ward",
        "mine.csv: line 6, column image: image {folder}/films/4.png cannot be read",
        f"mine.csv: line 6, column image: image {{folder}}/films/4.png {SIZES}",
        f"mine.csv: line 6, column image: image {{folder}}/films/4.png cannot be read: {FRAMES}",
        "mine.csv: line 6, column image: 3.png is on line 5 too",
        "mine.csv: line 6, column mass: the label is 'nan'; allowed: 0 and 1",
        f"mine.csv: line 6, column image: image {{folder}}/films/4.png cannot be read: {PIXELS}",
        None,
        "mine.csv: line 6, column image: ../4.png is outside of the folder",
    ],
    "dicom": [
        "mine.csv: no column 'site'; known: image, kind, ward",
        "mine.csv: line 6, column image: image {folder}/films/4.dcm is not a DICOM file",
        f"mine.csv: line 6, column image: image {{folder}}/films/4.dcm {SIZES}",
        f"line 6, column image: image {{folder}}/films/4.dcm cannot be read as DICOM: {FRAMES}",
        "mine.csv: line 6, column image: 3.dcm is on line 5 too",
        "line 6, column image: image {folder}/films/4.dcm cannot be read as DICOM: its rescaled "
        "pixels are NaN or infinite",
        "line 6, column image: image {folder}/films/4.dcm cannot be read as DICOM: it has "
        "3,600,000,000 pixels; allowed:",
        None,
        "mine.csv: line 6, column image: ../4.dcm is outside of the folder",
    ],
    "hf": [
        "pets: pets train row 0 has no 'site'; known: image, label",
        "pets: row 4, column image: the image cannot be read: it is not an image",
        "pets: pets train row 4 is uint8 of shape (1, 4, 8), row 0 is uint8 of (1, 6, 8)",
        f"pets: row 4, column image: the image cannot be read: {FRAMES}",
        None,
        "pets: pets train input 4 holds NaN or infinity",
        "data-00000-of-00001.arrow has 816 bytes and unpacks to 3,145,968, as a zip bomb does",
        None,
        "pets/state.json: '../data.arrow' is not a file in this folder",
    ],
    "features (csv)": [
        "trial.csv.gz: no column 'site'; known: id, age, outcome",
        "trial.csv.gz as CSV in UTF-8: Compressed file ended before",
        None,
        "trial.csv.gz: line 6 has 5 values for 4 columns",
        "trial.csv.gz: line 6, column id: r3 is at line 5, column id too",
        f"trial.csv.gz: line 6, {MISSING}",
        "trial.csv.gz has 5,9",
        None,
        None,
    ],
    "features (parquet)": [
        "trial.parquet: no column 'site'; known: id, age, outcome",
        "trial.parquet as parquet: ",
        None,
        "trial.parquet: column age holds list<element: double>; needed: columns of numbers",
        "trial.parquet: row 4, column id: r3 is at row 3, column id too",
        f"trial.parquet: row 4, {MISSING}",
        "bytes and unpacks to 96,000,000, as a zip bomb does",
        None,
        None,
    ],
    "features (npz)": [
        "trial.npz: no column 'site'; known: 0, 1, id, outcome",
        "trial.npz as .npz: File is not a zip file",
        "trial.npz: site has shape (11,); features need (12,)",
        "trial.npz: features is float64 of shape (12,); needed: numbers (N, features)",
        "trial.npz: row 4, column id: r3 is at row 3, column id too",
        "trial.npz: row 4, column 0: the value is missing",
        f"trial.npz: {ARRAY_BOMB}",
        f"trial.npz as .npz: array 'site' {OBJECTS}",
        "trial.npz: array '../ward' is outside of the file",
    ],
    "nih-cxr14": [
        "Data_Entry_2017.csv: no column 'Patient ID'; did you mean Patient?",
        "line 6, column Image Index: image {folder}/images/4.png cannot be read",
        None,
        f"line 6, column Image Index: image {{folder}}/images/4.png cannot be read: {FRAMES}",
        "line 6, column Image Index: 3.png is at line 5, column Image Index too",
        "line 2, column Finding Labels: 'nan' in 'nan' is not a finding",
        f"line 6, column Image Index: image {{folder}}/images/4.png cannot be read: {PIXELS}",
        None,
        "Data_Entry_2017.csv: line 6, column Image Index: ../4.png is nowhere in",
    ],
    "nih-cxr14 (npz)": [
        "films.npz: no array 'patient'; known: images, labels, names, classes",
        "films.npz as .npz: File is not a zip file",
        None,
        f"films.npz: {RANK}",
        "films.npz: names, row 4: 3.png is at row 3 too",
        "films.npz: images are float32 of 1 channels; expected grey uint8",
        f"films.npz: {ARRAY_BOMB}",
        f"films.npz as .npz: array 'patient' {OBJECTS}",
        "films.npz: array '../ward' is outside of the file",
    ],
    "chexpert": [
        "train.csv: no column 'Edema'; did you mean Oedema?",
        "train.csv: line 6, column Path: image {folder}/films/train/patient00004/1.jpg cannot be",
        None,
        f"line 6, column Path: image {{folder}}/films/train/patient00004/1.jpg cannot be read: "
        f"{FRAMES}",
        "train.csv: line 6, column Path: CheXpert/train/patient00003/1.jpg is at line 5",
        "train.csv: line 6, column Enlarged Cardiomediastinum: the label is 'NaN'",
        f"line 6, column Path: image {{folder}}/films/train/patient00004/1.jpg cannot be read: "
        f"{PIXELS}",
        None,
        "train.csv: line 6, column Path: the path is 'CheXpert/../4.jpg'",
    ],
    "tiny-imagenet": [
        "tiny: val/val_annotations.txt line 3 is 'v2.JPEG'; expected file, class",
        "tiny/train/n00/images/4.JPEG cannot be read: cannot identify image file",
        f"tiny/train/n00/images/4.JPEG {SIZES}",
        f"tiny/train/n00/images/4.JPEG cannot be read: {FRAMES}",
        "tiny: val/val_annotations.txt line 3: v1.JPEG is on line 2 too",
        f"tiny/train/n00/images/4.JPEG {FRACTIONS}",
        f"tiny/train/n00/images/4.JPEG cannot be read: {PIXELS}",
        None,
        "tiny: val/val_annotations.txt line 3 is '../../../v2.JPEG\\tn00\\t0'",
    ],
}
"""For each reader the place and the fault that its message has, case by case."""

PAIRS = [
    (reader, case, message)
    for reader, messages in MESSAGES.items()
    for case, message in zip(CASES, messages, strict=True)
]


def test_the_table_is_complete() -> None:
    assert set(MESSAGES) == set(READERS)
    assert {(reader, case) for reader, case, message in PAIRS if message is None} == set(EXCEPT)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder of a short name, which is not broken over lines, with a cache of its own."""
    monkeypatch.setattr(mapped, "LARGE", 2**20)
    monkeypatch.setattr(array_files, "LARGE", 2**20)
    monkeypatch.setenv("FEDBB_DATA", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("reader", "case", "message"),
    [pytest.param(*pair, id=f"{pair[0]}: {pair[1]}") for pair in PAIRS if pair[2] is not None],
)
@pytest.mark.filterwarnings("ignore:Invalid value for VR DS")
def test_a_malformed_file_is_one_message_and_leaves_nothing(
    place, monkeypatch, reader, case, message
) -> None:
    name = reader.split()[0]
    path, options = READERS[reader](place, case)
    data = {"name": name, "path": str(path), "options": options}
    data["partition"] = {"kind": "even", "clients": 2}
    recipe = place / "recipe.json"
    recipe.write_text(json.dumps({"data": data, "method": {"name": "fedavg"}}))
    result = call("run", recipe, "--out", place / "run", monkeypatch=monkeypatch)
    assert result.code == 2, result
    assert message.format(folder=place) in " ".join(result.err.split())
    assert result.err.startswith("fedbb: ")
    assert len(result.err.splitlines()) == 1
    assert not (place / "run").exists()
    # The empty file of a lock stays, since another process may hold it.
    assert [path for path in place.glob("cache/**/.*") if path.suffix != ".lock"] == []
    READERS[reader](place, None)
    words = [f"--set={key}={json.dumps(value)}" for key, value in options.items()]
    again = call("data", "check", name, "--path", path, *words, monkeypatch=monkeypatch)
    assert again.code == 0, again


BATCH10 = "{folder}/cifar-10-python.tar.gz: member cifar-10-batches-py/data_batch_1"
BATCH100 = "{folder}/cifar-100-python.tar.gz: member cifar-100-python/train"
SEALED_MESSAGES = {
    "cifar10": [
        f"{BATCH10} is not a CIFAR batch: b'labels'",
        "cannot read the archive",
        "4 images, labels of shape (3,)",
        "cannot reshape array of size 400 into shape (3,32,32)",
        None,
        "cannot convert float NaN to integer",
        f"{BATCH10} is not a CIFAR batch",
        "it asks for builtins.print, which is not allowed",
        "filename 'cifar-10-batches-py/data_batch_1' not found",
    ],
    "cifar10 (npm)": [
        "filename 'package/train_lables.json' not found",
        "cannot read the archive",
        "train_lables.json: there are 20 images but labels of shape (19,)",
        "member package/data_batch_1.png is not a PNG file of CIFAR images: cannot reshape",
        None,
        "train_lables.json: the labels are not a list of whole numbers",
        "member package/data_batch_1.png is not a PNG file of CIFAR images",
        None,
        "filename 'package/data_batch_1.png' not found",
    ],
    "cifar100": [
        f"{BATCH100} is not a CIFAR batch: b'fine_labels'",
        "cannot read the archive",
        "100 images, labels of shape (99,)",
        "cannot reshape array of size 10000 into shape (3,32,32)",
        None,
        "cannot convert float NaN to integer",
        f"{BATCH100} is not a CIFAR batch",
        "it asks for builtins.print, which is not allowed",
        "filename 'cifar-100-python/train' not found",
    ],
    "fashion-mnist": [
        "fashion-mnist is not in {folder}/fashion; get it with",
        "cannot read {folder}/fashion/train-images-idx3-ubyte.gz as .gz: Compressed file ended",
        "fashion train: images of shape (20, 28, 28) and labels of shape (19,)",
        "fashion train: images of shape (560, 28) and labels of shape (20,)",
        None,
        "train-images-idx3-ubyte.gz is not an idx file of unsigned bytes",
        "train-images-idx3-ubyte.gz is damaged: its content has SHA-256",
        None,
        None,
    ],
}
"""As above, for archives that are known by their SHA-256, if it fits although they are malformed.

They have no ids; pictures and idx files hold no Python objects, and idx files name no others.
"""


@pytest.mark.parametrize(
    ("reader", "case", "message"),
    [
        pytest.param(reader, case, message, id=f"{reader}: {case}")
        for reader, messages in SEALED_MESSAGES.items()
        for case, message in zip(CASES, messages, strict=True)
        if message is not None
    ],
)
def test_a_malformed_archive_is_one_message_even_if_its_sha_256_fits(
    place, monkeypatch, reader, case, message
) -> None:
    name = reader.split()[0]
    path = SEALED[reader](place, case, monkeypatch)
    words = ("data", "check", name, "--path", path)
    result = call(*words, monkeypatch=monkeypatch)
    assert result.code == 2, result
    assert message.format(folder=place) in " ".join(result.err.split())
    assert result.err.startswith("fedbb: ")
    assert len(result.err.splitlines()) == 1
    assert [path for path in place.glob("cache/**/*") if path.is_file()] == []
    path = SEALED[reader](place, None, monkeypatch)
    again = call("data", "check", name, "--path", path, monkeypatch=monkeypatch)
    assert again.code == 0, again


def test_an_archive_with_another_sha_256_is_not_read(place, monkeypatch) -> None:
    path = cifar10(place, None, monkeypatch)
    path.write_bytes(path.read_bytes() + b"x")
    result = call("data", "check", "cifar10", "--path", path, monkeypatch=monkeypatch)
    assert result.code == 2
    assert "It was not read" in " ".join(result.err.split())
