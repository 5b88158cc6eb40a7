import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbb.data.csv_table import read_sheet
from fedbb.errors import DataError


@pytest.fixture
def read(tmp_path):
    def write_and_read(content: bytes):
        path = tmp_path / "labels.csv"
        path.write_bytes(content)
        return read_sheet(path)

    return write_and_read


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_byte_order_mark_and_line_ends_make_no_difference(read, mark, end) -> None:
    lines = [b"image, site", b"a.png,north ", b'"b,1.png",south', b""]
    sheet = read(mark + end.join(lines))
    assert sheet.header == ("image", "site")
    assert sheet.column("image") == ["a.png", "b,1.png"]
    assert sheet.column("site") == ["north", "south"]


def test_places_are_told_by_line_also_after_blank_ones_and_values_of_several_lines(read) -> None:
    sheet = read(b'image,note\na.png,"two\nlines"\n\nb.png,one\n')
    assert sheet.place(0, "note").endswith("labels.csv: line 3, column note")
    assert sheet.place(1, "image").endswith("labels.csv: line 5, column image")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"image,label\n", "no rows"),
        (b"image,label,image\na,b,c\n", "line 1 names the column 'image' twice"),
        (b"image,label\na.png,1\nb.png\n", "line 3 has 1 values for 2 columns"),
        (b"image,label\na.png,1,2\n", "line 2 has 3 values for 2 columns"),
        (b"image\n\xff\xfe\n", "UTF-8"),
        (b'image\n"a.png\n', "line"),
        (b'image\n"a"b\n', "line 2"),
    ],
)
def test_a_damaged_sheet_is_refused_with_its_line(read, content, message) -> None:
    with pytest.raises(DataError, match=rf"labels\.csv.*{message}"):
        read(content)


def test_a_missing_column_is_named_with_the_nearest(read) -> None:
    with pytest.raises(DataError, match=r"labels\.csv: no column 'imge'; did you mean image\?"):
        read(b"image,label\na,b\n").column("imge")


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.csv"):
        read_sheet(tmp_path / "nowhere.csv")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_sheet_or_refused(tmp_path_factory, content) -> None:
    path = tmp_path_factory.mktemp("sheet") / "labels.csv"
    path.write_bytes(content)
    try:
        sheet = read_sheet(path)
    except DataError:
        return
    assert all(len(row) == len(sheet.header) for row in sheet.rows)
    assert len(sheet.lines) == len(sheet.rows)
