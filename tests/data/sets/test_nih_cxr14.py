import numpy as np
import pytest
from PIL import Image

from fedbb.data.csv_table import read_csv
from fedbb.data.registry import load_dataset
from fedbb.data.sets.nih_cxr14 import CLASSES, read_findings
from fedbb.errors import DataError
from fedbb.records import Task
from helpers.small_run import one_round

HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y],\n"
)
FINDINGS = [
    "No Finding",
    "Hernia",
    "Mass|Nodule",
    "Cardiomegaly|Effusion|Pleural_Thickening",
    "Pneumonia",
    "No Finding",
    "Edema",
    "Atelectasis",
]
NAMES = [f"{place // 2 + 1:08}_{place % 2:03}.png" for place in range(8)]
"""Two films of each of four patients."""


def table(path, findings=FINDINGS, names=NAMES):
    rows = [
        f"{name},{finding},0,{int(name[:8])},57,M,PA,2682,2749,0.143,0.143,\n"
        for name, finding in zip(names, findings, strict=True)
    ]
    path.write_text(HEADER + "".join(rows))
    return path


@pytest.fixture
def folder(tmp_path):
    """The table beside two folders of films, whose pixels hold their place in the table."""
    root = tmp_path / "nih"
    for place, name in enumerate(NAMES):
        images = root / f"images_00{place // 4 + 1}" / "images"
        images.mkdir(parents=True, exist_ok=True)
        mode = "RGBA" if place == 3 else "L"
        Image.fromarray(np.full((20, 20), 10 * place, np.uint8)).convert(mode).save(images / name)
    table(root / "Data_Entry_2017.csv")
    return root


def lists(folder, train: list[int], test: list[int]) -> None:
    for name, places in (("train_val_list.txt", train), ("test_list.txt", test)):
        (folder / name).write_text("\n".join(NAMES[place] for place in places))


def films_of(examples) -> list[int]:
    return (examples.inputs[:, 0, 0, 0] // 10).tolist()


def test_findings_become_fourteen_columns_and_no_finding_a_row_of_zeros(tmp_path) -> None:
    labels = read_findings(read_csv(table(tmp_path / "a.csv")))
    assert labels.shape == (8, 14)
    told = [[CLASSES[place] for place in np.flatnonzero(row)] for row in labels]
    assert told[:4] == [
        [],
        ["Hernia"],
        ["Mass", "Nodule"],
        ["Cardiomegaly", "Effusion", "Pleural_Thickening"],
    ]
    assert labels.sum() == 9


@pytest.mark.parametrize("wrong", ["Hernai", "", "No Finding|Mass", "Mass|", "Mass | Nodule"])
def test_an_unknown_finding_is_refused_with_its_line(tmp_path, wrong) -> None:
    path = table(tmp_path / "a.csv", ["Mass", wrong], NAMES[:2])
    with pytest.raises(
        DataError, match=r"a\.csv: line 3, column Finding Labels: .*is not a finding"
    ):
        read_findings(read_csv(path))


def test_the_published_lists_divide_the_films(folder, tmp_path) -> None:
    lists(folder, [0, 1, 6, 7], [2, 3])
    made = load_dataset("nih-cxr14", root=tmp_path, path=folder)
    assert made.task is Task.MULTILABEL
    assert made.classes == CLASSES
    assert (films_of(made.train), films_of(made.test)) == ([0, 1, 6, 7], [2, 3])
    assert made.train.columns["patient"].tolist() == ["1", "1", "4", "4"]
    assert made.train.inputs.shape == (4, 1, 150, 150)
    assert isinstance(made.train.inputs, np.memmap)
    assert made.notes == ("2 films are in neither part of the split, so left out",)
    assert made.train.labels[0].sum() == 0


def test_without_lists_whole_patients_are_tested_on(folder, tmp_path) -> None:
    options = {"test_share": 0.25, "size": 8, "channels": 3}
    path = folder / "Data_Entry_2017.csv"
    made = load_dataset("nih-cxr14", root=tmp_path, path=path, options=options)
    assert made.test.inputs.shape == (2, 3, 8, 8)
    assert sorted(films_of(made.train) + films_of(made.test)) == list(range(8))
    assert not set(made.train.columns["patient"]) & set(made.test.columns["patient"])
    other = [
        films_of(load_dataset("nih-cxr14", root=tmp_path, path=path, options=options, seed=s).test)
        for s in range(6)
    ]
    assert films_of(made.test) == other[0]
    assert len({tuple(test) for test in other}) > 1


def test_a_patient_on_both_sides_is_refused(folder, tmp_path) -> None:
    lists(folder, [0, 2], [1, 3])
    with pytest.raises(DataError, match=r"patient 1 is in the training and in the test .*\(2 such"):
        load_dataset("nih-cxr14", root=tmp_path, path=folder)
    lists(folder, [0, 1], [1])
    with pytest.raises(DataError, match="is in the other list too"):
        load_dataset("nih-cxr14", root=tmp_path, path=folder)
    lists(folder, [0, 1], [])
    with pytest.raises(DataError, match="leaves no test films"):
        load_dataset("nih-cxr14", root=tmp_path, path=folder)


def test_a_part_of_the_films_will_do_if_so_wished(folder, tmp_path) -> None:
    for path in (folder / "images_002" / "images").iterdir():
        path.unlink()
    with pytest.raises(DataError, match=r"line 6, column Image Index: .*\(4 of 8 films are not\)"):
        load_dataset("nih-cxr14", root=tmp_path, path=folder)
    options = {"unreadable": "skip", "test_share": 0.5}
    made = load_dataset("nih-cxr14", root=tmp_path, path=folder, options=options)
    assert sorted(films_of(made.train) + films_of(made.test)) == [0, 1, 2, 3]
    assert "4 of 8 films of the table are not in" in made.notes[0]
    with pytest.raises(DataError, match=r"8 of 8 films are not"):
        load_dataset(
            "nih-cxr14", path=folder, options={**options, "images": str(folder / "images_002")}
        )


def test_caps_draw_a_part_of_each_side_in_order(folder, tmp_path) -> None:
    lists(folder, [0, 1, 4, 5, 6, 7], [2, 3])
    options = {"n_train": 3, "n_test": 1, "size": 4}
    made = [
        load_dataset("nih-cxr14", root=tmp_path, path=folder, options=options, seed=seed)
        for seed in range(4)
    ]
    for dataset in made:
        assert (len(dataset.train), len(dataset.test)) == (3, 1)
        assert films_of(dataset.train) == sorted(set(films_of(dataset.train)))
    assert len({tuple(films_of(dataset.train)) for dataset in made}) > 1
    with pytest.raises(DataError, match="n_test is 0"):
        load_dataset("nih-cxr14", root=tmp_path, path=folder, options={"n_test": 0})


@pytest.fixture
def arrays(tmp_path):
    """Eight films as arrays, their classes in another order, and a table of the split."""
    order = CLASSES[::-1]
    labels = read_findings(read_csv(table(tmp_path / "a.csv")))[:, ::-1]
    fields = {
        "images": np.repeat(np.arange(8, dtype=np.uint8) * 10, 36).reshape(8, 6, 6),
        "labels": labels.astype(np.uint8),
        "patient": np.array([1, 1, 2, 2, 3, 3, 4, 4]),
        "names": np.array(NAMES),
        "classes": np.array(order),
    }
    sides = ["train"] * 4 + ["val"] * 2 + ["test"] * 2
    rows = [f"{name},{side}" for name, side in zip(NAMES, sides, strict=True)]
    (tmp_path / "split.csv").write_text("\n".join(["image,split", *rows]))

    def write(**changes):
        np.savez(tmp_path / "films.npz", **{**fields, **changes})
        return tmp_path / "films.npz"

    return write


def test_arrays_are_divided_by_a_table_and_val_is_left_out(arrays, tmp_path) -> None:
    options = {"split": str(tmp_path / "split.csv")}
    made = load_dataset("nih-cxr14", path=arrays(), options=options)
    assert (films_of(made.train), films_of(made.test)) == ([0, 1, 2, 3], [6, 7])
    assert made.notes == ("2 films are in neither part of the split, so left out",)
    assert made.train.columns["patient"].tolist() == ["1", "1", "2", "2"]
    assert made.train.inputs.shape == (4, 1, 6, 6)
    assert made.train.labels.tolist() == read_findings(read_csv(tmp_path / "a.csv"))[:4].tolist()
    with pytest.raises(DataError, match=r"line 6, column split: the split is 'val'"):
        load_dataset("nih-cxr14", path=arrays(), options={**options, "leave_out": []})


def test_arrays_without_a_table_are_divided_by_patients(arrays) -> None:
    options = {"test_share": 0.25, "size": 3, "channels": 3}
    made = load_dataset("nih-cxr14", path=arrays(), options=options)
    assert made.train.inputs.shape == (6, 3, 3, 3)
    assert sorted(films_of(made.train) + films_of(made.test)) == list(range(8))
    assert not set(made.train.columns["patient"]) & set(made.test.columns["patient"])
    assert load_dataset("nih-cxr14", path=arrays(), options={"channels": 3}).channels == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": np.array([*CLASSES[:-1], "Hernai"])}, "Hernai is missing or unknown"),
        ({"classes": np.array([*CLASSES[:-1], "Mass"])}, "Hernia is missing or unknown"),
        ({"labels": np.zeros((8, 13))}, r"labels have shape \(8, 13\)"),
        ({"labels": np.full((8, 14), 2.0)}, "allowed: 0, 1 and NaN"),
        ({"labels": np.full((8, 14), "x")}, "labels are <U1; needed: numbers"),
        ({"classes": np.array([b"\xff"] * 14)}, "classes cannot be read as text"),
        ({"names": np.array([b"\xff"] * 8)}, "names cannot be read as text"),
        ({"patient": np.array([b"\xff"] * 8)}, "patient cannot be read as text"),
        ({"patient": np.zeros((8, 2))}, r"patient has shape \(8, 2\)"),
        ({"patient": np.arange(7)}, "8 images but 7 patient"),
        ({"images": np.zeros((8, 6, 6), np.float32)}, "expected grey uint8"),
        ({"images": np.zeros((8, 6, 6, 3), np.uint8)}, "expected grey uint8"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays, changes, message) -> None:
    with pytest.raises(DataError, match=message):
        load_dataset("nih-cxr14", path=arrays(**changes))


def test_a_table_that_lacks_a_film_and_an_archive_that_lacks_an_array_are_refused(
    arrays, tmp_path
) -> None:
    (tmp_path / "split.csv").write_text(f"image,split\n{NAMES[0]},train\n")
    with pytest.raises(DataError, match=r"the split of 00000001_001\.png \(7 such films\)"):
        load_dataset("nih-cxr14", path=arrays(), options={"split": str(tmp_path / "split.csv")})
    np.savez(tmp_path / "b.npz", images=np.zeros((2, 3, 3), np.uint8), labels=np.zeros((2, 14)))
    with pytest.raises(DataError, match="no array 'patient'"):
        load_dataset("nih-cxr14", path=tmp_path / "b.npz")


def test_a_missing_path_table_or_size_is_told(tmp_path) -> None:
    with pytest.raises(DataError, match=r"needs a path: Data_Entry_2017\.csv"):
        load_dataset("nih-cxr14")
    with pytest.raises(DataError, match=r"holds no Data_Entry_2017\.csv"):
        load_dataset("nih-cxr14", path=tmp_path)
    with pytest.raises(DataError, match="size is 0"):
        load_dataset("nih-cxr14", path=tmp_path, options={"size": 0})


def test_a_recipe_of_the_published_files_runs_for_a_round(folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FEDBB_DATA", str(tmp_path / "cache"))
    record = one_round(tmp_path, name="nih-cxr14", path=str(folder), options={"size": 8})
    assert 0 <= record["scores"]["test"]["macro"]["balanced_accuracy"] <= 1
