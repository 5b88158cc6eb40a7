import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.data.csv_table import read_class_column, read_csv, read_label_columns
from fedbb.errors import DataError


@pytest.fixture
def read(tmp_path):
    def write_and_read(content: bytes):
        path = tmp_path / "labels.csv"
        path.write_bytes(content)
        return read_csv(path)

    return write_and_read


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_byte_order_mark_and_line_ends_make_no_difference(read, mark, end) -> None:
    lines = [b"image, site", b"a.png,north ", b'"b,1.png",south', b""]
    table = read(mark + end.join(lines))
    assert table.header == ("image", "site")
    assert table.column("image") == ["a.png", "b,1.png"]
    assert table.column("site") == ["north", "south"]


def test_places_are_told_by_line_also_after_blank_ones_and_values_of_several_lines(read) -> None:
    table = read(b'image,note\na.png,"two\nlines"\n\nb.png,one\n')
    assert table.place(0, "note").endswith("labels.csv: line 3, column note")
    assert table.place(1, "image").endswith("labels.csv: line 5, column image")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"image,label\n", "no rows"),
        (bytes(64), "is not a text table"),
        (b"\x1b\x02ab,c\n1,2\n", "is not a text table"),
        (b"image,label,image\na,b,c\n", "line 1 names the column 'image' twice"),
        (b"image,label\na.png,1\nb.png\n", "line 3 has 1 values for 2 columns"),
        (b"image,label\na.png,1,2\n", "line 2 has 3 values for 2 columns"),
        (b"image\n\xff\xfe\n", "UTF-8"),
        (b'image\n"a.png\n', "line"),
        (b'image\n"a"b\n', "line 2"),
    ],
)
def test_a_damaged_table_is_refused_with_its_line(read, content, message) -> None:
    with pytest.raises(DataError, match=rf"labels\.csv.*{message}"):
        read(content)


def test_a_missing_column_is_named_with_the_nearest(read) -> None:
    with pytest.raises(DataError, match=r"labels\.csv: no column 'imge'; did you mean image\?"):
        read(b"image,label\na,b\n").column("imge")


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.csv does not exist"):
        read_csv(tmp_path / "nowhere.csv")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_table_or_refused(tmp_path_factory, content) -> None:
    path = tmp_path_factory.mktemp("table") / "labels.csv"
    path.write_bytes(content)
    try:
        table = read_csv(path)
    except DataError:
        return
    assert all(len(row) == len(table.header) for row in table.rows)
    lines = [table.line(row) for row in range(len(table.rows))]
    assert lines == sorted(set(lines))


@pytest.fixture
def table(read):
    def write_and_read(**columns: list[str]):
        rows = [columns, *zip(*columns.values(), strict=True)]
        quoted = (",".join(f'"{value}"' for value in row) for row in rows)
        return read("\n".join(quoted).encode())

    return write_and_read


def test_classes_are_numbered_in_alphabetical_order_unless_given(table) -> None:
    animals = table(animal=["dog", " cat", "dog"])
    classes, labels = read_class_column(animals, "animal", ())
    assert classes == ("cat", "dog")
    assert labels.tolist() == [1, 0, 1]
    classes, labels = read_class_column(animals, "animal", ("dog", "horse", "cat"))
    assert classes == ("dog", "horse", "cat")
    assert labels.tolist() == [0, 2, 0]


def test_a_class_that_is_blank_or_unknown_is_named_with_its_line(table) -> None:
    with pytest.raises(DataError, match=r"labels\.csv: line 3, column animal: .* no class name"):
        read_class_column(table(animal=["dog", " "]), "animal", ())
    with pytest.raises(DataError, match=r"line 3, column animal: 'hors' is not a class; did you"):
        read_class_column(table(animal=["dog", "hors"]), "animal", ("dog", "horse"))


def test_marks_are_read_column_by_column(table) -> None:
    marks = table(edema=["0", "1.0", " 1"], mass=["0.0", "0", "1"])
    labels = read_label_columns(marks, ("mass", "edema"), "refuse", "refuse")
    assert labels.dtype == np.float32
    assert labels.tolist() == [[0, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize("uncertain", [("zeros", 0.0), ("ones", 1.0), ("ignore", np.nan)])
@pytest.mark.parametrize("blank", [("zeros", 0.0), ("ones", 1.0), ("ignore", np.nan)])
def test_uncertain_and_blank_follow_each_its_policy(table, uncertain, blank) -> None:
    marks = table(edema=["-1", "", "-1.0", "1"])
    labels = read_label_columns(marks, ("edema",), uncertain[0], blank[0])
    expected = [[uncertain[1]], [blank[1]], [uncertain[1]], [1]]
    assert np.array_equal(labels, expected, equal_nan=True)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("-1", "the label is -1; set the option uncertain"),
        ("", "the label is blank; set the option blank"),
        ("2", "the label is '2'; allowed: 0 and 1"),
        ("yes", "the label is 'yes'"),
        ("nan", "the label is 'nan'"),
    ],
)
def test_a_mark_that_nothing_allows_is_named_with_line_and_column(table, value, message) -> None:
    marks = table(edema=["0", "1"], mass=["0", value])
    with pytest.raises(DataError, match=rf"labels\.csv: line 3, column mass: {message}"):
        read_label_columns(marks, ("edema", "mass"), "refuse", "refuse")


def test_a_missing_label_column_is_named(table) -> None:
    with pytest.raises(DataError, match=r"no column 'masss'; did you mean mass\?"):
        read_label_columns(table(mass=["0"]), ("masss",), "refuse", "refuse")
