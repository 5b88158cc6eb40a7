import numpy as np
import pytest
from PIL import Image

from fedbb.data.csv_table import read_csv
from fedbb.data.images import loader
from fedbb.data.registry import load_dataset
from fedbb.data.sets.table import TableOptions, request_images
from fedbb.data.source import Source
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
    assert dataset.train.inputs.shape == (9, 1, 6, 6)
    assert len(dataset.test) == 3
    numbers = dataset.train.inputs[:, 0, 0, 0] // 20
    assert np.array_equal(dataset.train.labels, 1 - numbers % 2)
    assert dataset.notes == ()


def test_columns_of_marks_make_a_multi_label_data_set(folder) -> None:
    dataset = load(folder, label_columns=["edema", "mass"], uncertain="ignore")
    assert dataset.task is Task.MULTILABEL
    assert dataset.classes == ("edema", "mass")
    numbers = dataset.train.inputs[:, 0, 0, 0] // 20
    assert np.array_equal(dataset.train.labels[:, 0], numbers % 2)
    assert np.array_equal(np.isnan(dataset.train.labels[:, 1]), numbers == 4)
    with pytest.raises(DataError, match=r"mine\.csv: line 6, column mass: the label is -1"):
        load(folder, label_columns=["edema", "mass"])


def test_a_column_may_say_which_rows_are_for_testing(folder) -> None:
    dataset = load(folder, class_column="animal", split_column="part", leave_out=["val"])
    assert (dataset.train.inputs[:, 0, 0, 0] // 20).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert (dataset.test.inputs[:, 0, 0, 0] // 20).tolist() == [8, 9, 10, 11]
    assert dataset.validation is None
    dataset = load(folder, class_column="animal", split_column="part")
    assert (dataset.validation.inputs[:, 0, 0, 0] // 20).tolist() == [7]


def test_a_file_outside_of_the_folder_is_refused(folder) -> None:
    table = folder / "mine.csv"
    text = table.read_text("utf-8")
    for name in ("../3.png", "/etc/passwd", "a/../../3.png"):
        table.write_text(text.replace("3.png", name, 1), "utf-8")
        with pytest.raises(DataError, match=r"mine\.csv: line 5, column image: .* is outside of"):
            load(folder, class_column="animal")
    table.write_text(text.replace("3.png", str(folder / "pictures" / "3.png"), 1), "utf-8")
    assert len(load(folder, class_column="animal").train) == 10


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
    numbers = dataset.train.inputs[:, 0, 0, 0] // 20
    assert [f"p{number // 2}" for number in numbers] == dataset.train.columns["patient"].tolist()
    assert np.array_equal(dataset.train.labels, 1 - numbers % 2)
    assert dataset.notes == ("1 unreadable images skipped: 3.png",)
    table = folder / "mine.csv"
    table.write_text(table.read_text("utf-8").replace("val", "other"), "utf-8")
    with pytest.raises(DataError, match="line 9, column part: the split is 'other'"):
        load(folder, class_column="animal", split_column="part", unreadable="skip")


def test_size_is_one_number_or_height_and_width(folder) -> None:
    square, wide = (load(folder, class_column="animal", size=size) for size in (4, [4, 8]))
    assert square.train.inputs.shape[1:] == (3, 4, 4)
    assert wide.train.inputs.shape[1:] == (3, 4, 8)


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
            "line 2, column animal: 'dog' is not a class",
        ),
        ({"class_column": "animal", "size": 0}, "size is 0"),
        ({"class_column": "animal", "channels": 2}, "option channels = 2"),
        ({"class_column": "animal", "test_share": 1.0}, "share to hold out is 1.0"),
        ({"class_column": "animal", "unreadable": "maybe"}, "option unreadable = 'maybe'"),
        ({"class_column": "animal", "colour": 1}, "'colour' is unknown"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_by_name(folder, options, message) -> None:
    with pytest.raises(DataError, match=message):
        load(folder, **options)


def test_a_path_is_needed() -> None:
    with pytest.raises(DataError, match="needs a path: the CSV file"):
        load_dataset("table", options={"class_column": "animal"})


@pytest.fixture
def mixed(tmp_path):
    """Three good images, one cut short, one of another size, and one missing."""
    for number in range(3):
        Image.fromarray(np.full((4, 5), number, np.uint8)).save(tmp_path / f"{number}.png")
    Image.fromarray(np.zeros((4, 6), np.uint8)).save(tmp_path / "wide.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "0.png").read_bytes()[:40])
    return tmp_path


def read(folder, names: list[str], policy="refuse", channels=1, size=None):
    (folder / "labels.csv").write_text("\n".join(["image", *names]))
    table = read_csv(folder / "labels.csv")
    options = TableOptions(unreadable=policy, channels=channels, size=size)
    source = Source("table", root=folder / "cache")
    return loader.load_images(request_images(table, options), source)


def test_images_come_in_the_order_of_the_rows(mixed) -> None:
    made = read(mixed, ["2.png", "0.png", "1.png"])
    assert made.images[:, 0, 0, 0].tolist() == [2, 0, 1]
    assert made.rows.tolist() == [0, 1, 2]
    assert made.notes() == ()


@pytest.mark.parametrize("bad", ["cut.png", "wide.png", "missing.png"])
def test_an_image_that_cannot_be_used_is_refused_with_file_and_line(mixed, bad) -> None:
    with pytest.raises(DataError, match=rf"labels\.csv: line 3, column image: image .*{bad}"):
        read(mixed, ["0.png", bad, "1.png"])


def test_unusable_images_are_skipped_and_counted_if_so_wished(mixed) -> None:
    names = ["cut.png", "1.png", "wide.png", "missing.png", "2.png"]
    made = read(mixed, names, "skip")
    assert made.rows.tolist() == [1, 4]
    assert made.images[:, 0, 0, 0].tolist() == [1, 2]
    expected = "3 unreadable images skipped: cut.png, wide.png, missing.png"
    assert made.notes() == (expected,)


def test_with_a_size_all_images_fit(mixed) -> None:
    made = read(mixed, ["0.png", "wide.png"], channels=3, size=8)
    assert made.images.shape == (2, 3, 8, 8)


def test_a_long_list_of_skipped_images_is_cut(mixed) -> None:
    made = read(mixed, ["0.png", *(f"lost {number}.png" for number in range(9))], "skip")
    note = (
        "9 unreadable images skipped: lost 0.png, lost 1.png, lost 2.png, lost 3.png, lost 4.png, …"
    )
    assert made.notes() == (note,)


def test_no_readable_image_at_all_is_refused(mixed) -> None:
    with pytest.raises(DataError, match="none of its 2 images can be read"):
        read(mixed, ["cut.png", "missing.png"], "skip")


def test_an_image_named_twice_is_refused_with_both_lines(mixed) -> None:
    with pytest.raises(DataError, match=r"line 4, column image: 0\.png is on line 2 too"):
        read(mixed, ["0.png", "1.png", "0.png"])


def test_a_blank_name_is_refused_with_its_line(mixed) -> None:
    with pytest.raises(DataError, match="line 3, column image: there is no file name"):
        read(mixed, ["0.png", '" "'])


def test_many_images_are_kept_decoded_and_come_out_the_same(mixed, monkeypatch) -> None:
    names = ["2.png", "cut.png", "0.png", "missing.png", "1.png"]
    plain = read(mixed, names, "skip")
    monkeypatch.setattr(loader, "MANY", 5)
    for _ in range(2):
        kept = read(mixed, names, "skip")
        assert isinstance(kept.images, np.memmap)
        assert np.array_equal(kept.images, plain.images)
        assert kept.rows.tolist() == plain.rows.tolist()
        assert kept.notes() == plain.notes()
    assert len(list((mixed / "cache" / "table" / "decoded").glob("[!.]*"))) == 1
    with pytest.raises(DataError, match=r"labels\.csv: line 3, column image: image .*cut\.png"):
        read(mixed, names)
