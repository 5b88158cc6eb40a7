import numpy as np
import pytest
from PIL import Image

from fedbb.data.registry import load_dataset
from fedbb.data.sets.chexpert import CLASSES
from fedbb.errors import DataError
from fedbb.records import Task
from helpers.small_run import one_round

OBSERVATIONS = (
    "No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,"
    "Consolidation,Pneumonia,Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,"
    "Support Devices"
)
HEADER = f"Path,Sex,Age,Frontal/Lateral,AP/PA,{OBSERVATIONS}\n"


def film(part: str, patient: int, view: str, place: int = 1) -> str:
    return f"CheXpert-v1.0-small/{part}/patient{patient:05}/study1/view{place}_{view}.jpg"


def row(path: str, **marks: str) -> str:
    values = [marks.get(name.replace(" ", "_"), "") for name in OBSERVATIONS.split(",")]
    view = "Lateral" if "lateral" in path else "Frontal"
    return f"{path},Female,68,{view},{'' if view == 'Lateral' else 'AP'},{','.join(values)}\n"


@pytest.fixture
def folder(tmp_path):
    """Six patients with a frontal and a lateral film each, and two more in valid.csv."""
    root = tmp_path / "renamed by the user"
    rows = []
    for patient in range(1, 7):
        rows.append(row(film("train", patient, "frontal"), Edema="1.0", Fracture="-1.0"))
        rows.append(row(film("train", patient, "lateral", 2), Edema="0.0", No_Finding="1.0"))
    valid = [row(film("valid", patient, "frontal"), Pneumonia="1.0") for patient in (64541, 64542)]
    for text in (*rows, *valid):
        path = root / text.split(",")[0].split("/", 1)[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((32, 39), len(path.name), np.uint8)).save(path)
    (root / "train.csv").write_text(HEADER + "".join(rows))
    (root / "valid.csv").write_text(HEADER + "".join(valid))
    return root


def column(examples, name: str) -> list[float]:
    return examples.labels[:, CLASSES.index(name)].tolist()


def load(folder, **options):
    return load_dataset("chexpert", root=folder / "cache", path=folder, options=options)


def test_ten_classes_remain_and_patients_are_whole(folder) -> None:
    made = load(folder)
    assert made.task is Task.MULTILABEL
    assert len(made.classes) == 10
    left_out = {"No Finding", "Support Devices", "Pleural Effusion", "Pleural Other"}
    assert set(made.classes) == set(OBSERVATIONS.split(",")) - left_out
    assert made.train.inputs.shape[1:] == (1, 150, 150)
    assert isinstance(made.train.inputs, np.memmap)
    patients = [set(part.columns["patient"]) for part in (made.train, made.test)]
    assert patients[0] | patients[1] == {f"{patient:05}" for patient in range(1, 7)}
    assert not patients[0] & patients[1]
    assert len(made.test) == 2
    assert sorted(set(made.train.columns["view"])) == ["frontal", "lateral"]
    assert column(made.test, "Edema") == [1, 0]


@pytest.mark.parametrize(
    ("uncertain", "blank", "expected"),
    [
        ("zeros", "zeros", [0, 0]),
        ("ones", "zeros", [1, 0]),
        ("ignore", "zeros", [np.nan, 0]),
        ("zeros", "ones", [0, 1]),
        ("ones", "ignore", [1, np.nan]),
    ],
)
def test_uncertain_and_blank_labels_follow_their_policies(
    folder, uncertain, blank, expected
) -> None:
    made = load(folder, uncertain=uncertain, blank=blank, size=4)
    assert np.array_equal(column(made.test, "Fracture"), expected, equal_nan=True)


def test_labels_in_doubt_can_be_refused(folder) -> None:
    with pytest.raises(DataError, match=r"train\.csv: line 2, column Fracture: the label is -1"):
        load(folder, uncertain="refuse")


@pytest.mark.parametrize(("view", "number"), [("frontal", 6), ("lateral", 6), ("all", 12)])
def test_a_view_can_be_chosen(folder, view, number) -> None:
    made = load(folder, view=view, size=4)
    assert len(made.train) + len(made.test) == number
    if view != "all":
        assert set(made.train.columns["view"]) == {view}


def test_valid_can_be_the_test_part(folder) -> None:
    made = load(folder, test="valid", size=4, channels=3)
    assert len(made.train) == 12
    assert column(made.test, "Pneumonia") == [1, 1]
    assert made.test.columns["patient"].tolist() == ["64541", "64542"]
    assert made.channels == 3
    (folder / "valid.csv").write_text(HEADER + row(film("train", 2, "frontal")))
    with pytest.raises(DataError, match="patient 00002 is in the training and in the test part"):
        load(folder, test="valid")


def test_caps_and_the_table_as_path(folder) -> None:
    options = {"n_train": 5, "n_test": 1, "size": 4}
    made = load_dataset(
        "chexpert", root=folder / "cache", path=folder / "train.csv", options=options
    )
    assert (len(made.train), len(made.test)) == (5, 1)


def test_damaged_films_are_refused_or_skipped(folder) -> None:
    (folder / "train" / "patient00003" / "study1" / "view1_frontal.jpg").write_bytes(b"")
    with pytest.raises(DataError, match=r"patient00003/study1/view1_frontal\.jpg cannot be read"):
        load(folder)
    made = load(folder, unreadable="skip", size=4)
    assert len(made.train) + len(made.test) == 11


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (row("train/view1_frontal.jpg"), r"line 2, column Path: .*expected CheXpert-v1\.0-small"),
        (row("a/../patient1/view1_frontal.jpg"), "line 2, column Path"),
        (row("/train/patient00001/view1_frontal.jpg"), "line 2, column Path: the path is"),
        (row("a/train/somebody/view1_frontal.jpg"), "names no patient"),
        (row(film("train", 1, "frontal")).replace("Frontal", "Above"), "the view is 'above'"),
        (row(film("train", 1, "frontal")), "has no lateral films"),
    ],
)
def test_a_table_of_another_form_is_refused(folder, text, message) -> None:
    (folder / "train.csv").write_text(HEADER + text)
    with pytest.raises(DataError, match=message):
        load(folder, view="lateral" if "has no" in message else "all")


def test_a_missing_path_or_table_is_told(tmp_path) -> None:
    with pytest.raises(DataError, match=r"needs a path: train\.csv"):
        load_dataset("chexpert")
    with pytest.raises(DataError, match=r"train\.csv"):
        load_dataset("chexpert", path=tmp_path)
    with pytest.raises(DataError, match="size is 0"):
        load_dataset("chexpert", path=tmp_path, options={"size": 0})


def test_a_recipe_with_unknown_labels_runs_for_a_round(folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FEDBB_DATA", str(tmp_path / "cache"))
    record = one_round(
        tmp_path, name="chexpert", path=str(folder), options={"size": 8, "uncertain": "ignore"}
    )
    assert 0 <= record["scores"]["test"]["macro"]["balanced_accuracy"] <= 1
