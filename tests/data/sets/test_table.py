import numpy as np
import pytest
from PIL import Image

from fedbb.data.registry import load_dataset
from fedbb.errors import DataError
from fedbb.partition.registry import Rule, divide
from fedbb.records import Task

HEADER = "image,animal,edema,mass,site,patient,part"
ROWS = [
    f"{n}.png,{'cat' if n % 2 else 'dog'},{n % 2},{'-1' if n == 4 else 1},"
    f"site {n % 3},p{n // 2},{'test' if n >= 8 else 'val' if n == 7 else 'train'}"
    for n in range(12)
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pictures").mkdir()
    for number in range(12):
        pixels = np.full((6, 6, 3), number * 20, np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{number}.png")
    (tmp_path / "mine.csv").write_text("\n".join([HEADER, *ROWS]))
    return tmp_path


def load(folder, seed=0, **options):
    options = {"images": str(folder / "pictures")} | options
    return load_dataset("table", path=folder / "mine.csv", seed=seed, options=options)


def test_one_column_of_names_makes_a_multi_class_data_set(folder) -> None:
    dataset = load(folder, class_column="animal", channels=1, test_share=0.25)
    assert dataset.name == "mine"
    assert dataset.task is Task.MULTICLASS
    assert dataset.classes == ("cat", "dog")
    assert dataset.train.images.shape == (9, 1, 6, 6)
    assert len(dataset.test) == 3
    numbers = dataset.train.images[:, 0, 0, 0] // 20
    assert np.array_equal(dataset.train.labels, 1 - numbers % 2)
    assert dataset.notes == ()


def test_columns_of_marks_make_a_multi_label_data_set(folder) -> None:
    dataset = load(folder, label_columns=["edema", "mass"], uncertain="ignore")
    assert dataset.task is Task.MULTILABEL
    assert dataset.classes == ("edema", "mass")
    numbers = dataset.train.images[:, 0, 0, 0] // 20
    assert np.array_equal(dataset.train.labels[:, 0], numbers % 2)
    assert np.array_equal(np.isnan(dataset.train.labels[:, 1]), numbers == 4)
    with pytest.raises(DataError, match=r"mine\.csv: line 6, column mass: the label is -1"):
        load(folder, label_columns=["edema", "mass"])


def test_a_column_may_say_which_rows_are_for_testing(folder) -> None:
    dataset = load(folder, class_column="animal", split_column="part", leave_out=["val"])
    assert (dataset.train.images[:, 0, 0, 0] // 20).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert (dataset.test.images[:, 0, 0, 0] // 20).tolist() == [8, 9, 10, 11]
    with pytest.raises(DataError, match=r"mine\.csv: line 9, column part: the split is 'val'"):
        load(folder, class_column="animal", split_column="part")


def test_no_patient_is_on_both_sides(folder) -> None:
    for seed in range(5):
        dataset = load(folder, seed, class_column="animal", group="patient", test_share=0.3)
        patients = (set(part.columns["patient"]) for part in (dataset.train, dataset.test))
        assert set.isdisjoint(*patients)


def test_sites_can_be_clients(folder) -> None:
    dataset = load(folder, class_column="animal", columns=["site"])
    made = divide(Rule("column", column="site"), dataset.train, dataset.task)
    assert len(made.clients) == 3
    assert sum(made.sizes) == len(dataset.train)


def test_skipped_images_are_missing_everywhere_and_noted(folder) -> None:
    (folder / "pictures" / "3.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"mine\.csv: line 5, column image: image .*3\.png"):
        load(folder, class_column="animal")
    dataset = load(folder, class_column="animal", columns=["patient"], unreadable="skip")
    assert len(dataset.train) + len(dataset.test) == 11
    assert len(dataset.train.columns["patient"]) == len(dataset.train)
    numbers = dataset.train.images[:, 0, 0, 0] // 20
    assert [f"p{number // 2}" for number in numbers] == dataset.train.columns["patient"].tolist()
    assert np.array_equal(dataset.train.labels, 1 - numbers % 2)
    assert dataset.notes == ("1 unreadable images skipped: 3.png",)
    with pytest.raises(DataError, match="line 9, column part: the split is 'val'"):
        load(folder, class_column="animal", split_column="part", unreadable="skip")


def test_size_is_one_number_or_height_and_width(folder) -> None:
    square, wide = (load(folder, class_column="animal", size=size) for size in (4, [4, 8]))
    assert square.train.images.shape[1:] == (3, 4, 4)
    assert wide.train.images.shape[1:] == (3, 4, 8)


def test_images_are_by_default_beside_the_csv(folder) -> None:
    (folder / "mine.csv").rename(folder / "pictures" / "mine.csv")
    path = folder / "pictures" / "mine.csv"
    dataset = load_dataset("table", path=path, options={"class_column": "animal"})
    assert len(dataset.train) + len(dataset.test) == 12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either label_columns or class_column"),
        ({"class_column": "animal", "label_columns": ["edema"]}, "either label_columns or"),
        ({"class_column": "animl"}, r"no column 'animl'; did you mean animal\?"),
        ({"class_column": "animal", "image_column": "file"}, "no column 'file'"),
        ({"class_column": "animal", "columns": ["sight"]}, "no column 'sight'"),
        ({"class_column": "animal", "group": "patients"}, "did you mean patient"),
        ({"class_column": "animal", "split_column": "side"}, "no column 'side'"),
        (
            {"class_column": "animal", "classes": ["cat"]},
            "line 2, column animal: 'dog' is no class",
        ),
        ({"class_column": "animal", "size": 0}, "size is 0"),
        ({"class_column": "animal", "channels": 2}, "option channels is 2"),
        ({"class_column": "animal", "test_share": 1.0}, "share to hold out is 1.0"),
        ({"class_column": "animal", "unreadable": "maybe"}, "option unreadable is 'maybe'"),
        ({"class_column": "animal", "colour": 1}, "'colour' is unknown"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_by_name(folder, options, message) -> None:
    with pytest.raises(DataError, match=message):
        load(folder, **options)


def test_a_path_is_needed() -> None:
    with pytest.raises(DataError, match="needs a path: the CSV file"):
        load_dataset("table", options={"class_column": "animal"})
