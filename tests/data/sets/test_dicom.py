import shutil

import numpy as np
import pydicom
import pytest
from pydicom.data import get_testdata_file
from pydicom.pixels.processing import apply_windowing

import fedbb
from fedbb.data.registry import load_dataset
from fedbb.data.sets.dicom import DicomFormat, apply_window, read_header, read_pixels
from fedbb.errors import DataError
from helpers.commands import fedbb as call
from helpers.dicom_files import RAMP, write


@pytest.fixture
def clinic(tmp_path):
    """Twelve files of six patients at two sites, with a table."""
    lines = ["image,finding,site"]
    for number in range(12):
        write(tmp_path / "films" / f"{number}.dcm", RAMP + number, patient=f"P{number // 2}")
        lines.append(f"{number}.dcm,{'mass' if number % 3 else 'none'},{'AB'[number // 6]}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def options(folder, **more):
    images = str(folder / "films")
    return {"images": images, "class_column": "finding", "columns": ["site"], **more}


def test_a_table_of_files_is_a_data_set_with_patients_and_studies(clinic) -> None:
    data = load_dataset("dicom", path=clinic / "labels.csv", options=options(clinic))
    assert data.classes == ("mass", "none")
    assert data.input_shape == (1, 6, 8)
    assert set(data.train.columns) == {"PatientID", "StudyInstanceUID", "site"}
    assert set(data.train.columns["PatientID"]).isdisjoint(data.test.columns["PatientID"])
    assert all(study.startswith("1.2.") for study in data.train.columns["StudyInstanceUID"])
    assert len(fedbb.partition.by_column(data, "site")) == 2
    scaled = load_dataset(
        "dicom", path=clinic / "labels.csv", options=options(clinic, size=4, channels=3)
    )
    assert scaled.input_shape == (3, 4, 4)


def test_a_recipe_runs_on_dicom_files(clinic) -> None:
    recipe = {
        "engine": "inline",
        "data": {
            "name": "dicom",
            "path": str(clinic / "labels.csv"),
            "options": options(clinic, size=8, window=[400, 900]),
            "partition": {"kind": "column", "column": "PatientID", "clients": 2},
        },
        "model": {"name": "linear"},
        "method": {"name": "fedbb"},
        "rounds": {"number": 1},
    }
    assert len(fedbb.run(recipe).history[0].clients) == 2


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize(("center", "width"), [(40.0, 400.0), (300.5, 33.0), (0.0, 2.0)])
def test_a_window_is_that_of_pydicom(function, center, width) -> None:
    values = np.arange(-500, 900, dtype=np.int16).reshape(20, 70)
    file = pydicom.Dataset()
    file.WindowCenter, file.WindowWidth, file.VOILUTFunction = center, width, function
    file.PhotometricInterpretation, file.BitsStored, file.PixelRepresentation = "MONOCHROME2", 16, 0
    with np.errstate(over="ignore"):
        theirs = apply_windowing(values, file) / (2**16 - 1)
    ours = apply_window(values.astype(float), center, width, function)
    assert ours == pytest.approx(theirs, abs=1e-12)


def test_rescale_window_and_monochrome1_are_applied(tmp_path) -> None:
    plain = {"RescaleSlope": 2, "RescaleIntercept": -100}
    file = pydicom.dcmread(write(tmp_path / "a.dcm", **plain))
    hounsfield = 2.0 * RAMP - 100
    spread = (hounsfield - hounsfield.min()) / (hounsfield.max() - hounsfield.min())
    assert np.array_equal(read_pixels(file, "full"), np.rint(255 * spread).astype(np.uint8))
    window = np.clip((hounsfield - 39.5) / 399 + 0.5, 0, 1)
    assert np.array_equal(read_pixels(file, (40, 400)), np.rint(255 * window).astype(np.uint8))
    named = write(tmp_path / "b.dcm", **plain, WindowCenter=[40, 9], WindowWidth=[400, 9])
    assert np.array_equal(read_pixels(pydicom.dcmread(named), "file"), read_pixels(file, (40, 400)))
    dark = write(tmp_path / "c.dcm", **plain, PhotometricInterpretation="MONOCHROME1")
    inverted = read_pixels(pydicom.dcmread(dark), (40, 400)).astype(int)
    assert np.array_equal(inverted, 255 - read_pixels(file, (40, 400)).astype(int))


def test_an_image_without_contrast_is_no_error(tmp_path) -> None:
    file = pydicom.dcmread(write(tmp_path / "a.dcm", np.full((3, 3), 7, np.uint16)))
    assert len(np.unique(read_pixels(file, "file"))) == 1


REAL = ["CT_small.dcm", "MR_small.dcm", "MR_small_RLE.dcm", "SC_rgb_small_odd.dcm"]


def test_files_of_scanners_are_read(tmp_path) -> None:
    lines = ["image,kind"]
    for place, name in enumerate(REAL):
        shutil.copy(get_testdata_file(name, download=False), tmp_path / f"{place}.dcm")
        lines.append(f"{place}.dcm,{name[:2]}")
    (tmp_path / "labels.csv").write_text("\n".join(lines) + "\n")
    given = {"class_column": "kind", "size": 16, "group": None}
    data = load_dataset("dicom", path=tmp_path / "labels.csv", options=given)
    assert len(data.train) + len(data.test) == 4
    both = {*data.train.columns["PatientID"], *data.test.columns["PatientID"]}
    assert {"1CT1", "4MR1"} <= both
    ct = pydicom.dcmread(get_testdata_file("CT_small.dcm", download=False))
    assert read_pixels(ct, "file").shape == (128, 128)


def test_color_keeps_its_channels(tmp_path) -> None:
    pixels = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)
    assert np.array_equal(
        read_pixels(pydicom.dcmread(write(tmp_path / "a", pixels)), "file"), pixels
    )


def spoil(folder, how):
    path = folder / "films" / "4.dcm"
    table = folder / "labels.csv"
    match how:
        case "frames":
            write(path, NumberOfFrames=3, PixelData=RAMP.tobytes() * 3)
        case "palette":
            write(path, PhotometricInterpretation="PALETTE COLOR")
        case "no dicom":
            path.write_bytes(b"nothing of the kind" * 20)
        case "cut":
            write(path, PixelData=RAMP.tobytes()[:-40])
        case "missing":
            path.unlink()
        case "mixed sizes":
            write(path, RAMP[:4])
        case "no patient":
            write(path, PatientID="")
        case "outside":
            table.write_text(table.read_text().replace("4.dcm", "../4.dcm"))
        case "twice":
            table.write_text(table.read_text().replace("4.dcm", "3.dcm"))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("frames", "line 6, column image: image .*it has 3 frames, and an image is one"),
        ("palette", "line 6, column image: .*its pixels are PALETTE COLOR"),
        ("no dicom", "line 6, column image: .*4.dcm is not a DICOM file"),
        ("cut", "line 6, column image: .*cannot be read as DICOM"),
        ("missing", "line 6, column image: .*cannot be read as DICOM: .*No such file"),
        ("mixed sizes", "line 6, column image: .*4 × 8 pixels"),
        ("no patient", "line 6, column image: the file has no PatientID; set group"),
        ("outside", r"line 6, column image: \.\./4.dcm is outside of the folder"),
        ("twice", "line 6, column image: 3.dcm is on line 5 too"),
    ],
)
def test_a_malformed_file_is_named_by_table_and_line(clinic, monkeypatch, how, message) -> None:
    spoil(clinic, how)
    path = clinic / "labels.csv"
    words = ["--set", "class_column=finding", "--set", f"images={clinic / 'films'}"]
    result = call("data", "check", "dicom", "--path", path, *words, monkeypatch=monkeypatch)
    assert result.code == 2
    with pytest.raises(DataError, match=message):
        load_dataset("dicom", path=path, options=options(clinic))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\x28\x00\x10\x00US\x02\x00\x06\x00", b"\x28\x00\x10\x00US\x01\x00\x06"),
        (b"\x10\x00\x20\x00LO", b"\x10\x00\x20\x00XX"),
        (b"\x10\x00\x20\x00LO\x02\x00P1", b"\x10\x00\x20\x00US\x01\x00P"),
    ],
    ids=["rows of one byte", "patient of an unknown type", "patient of a wrong type"],
)
@pytest.mark.filterwarnings("ignore")
def test_elements_that_pydicom_cannot_convert_are_refused(tmp_path, old, new):
    """Found by fuzzing: pydicom converts elements when they are asked for, with its own errors."""
    path = write(tmp_path / "x.dcm")
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    refused = []
    for read in (
        lambda: DicomFormat(1, (4, 4)).decode(path, path),
        lambda: read_header(path, ("PatientID", "StudyInstanceUID")),
    ):
        try:
            read()
        except DataError as error:
            refused.append(str(error))
    assert any(f"image {path} cannot be read as DICOM: " in message for message in refused)
