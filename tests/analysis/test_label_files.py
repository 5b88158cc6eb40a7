import csv
import gzip
import io
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbb.analysis.label_files import Layout, read_label_arrays, read_label_table
from fedbb.errors import DataError
from fedbb.records import Task


def write(folder, text, name="labels.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def refusal(folder, text, layout=None):
    with pytest.raises(DataError) as caught:
        read_label_table(write(folder, text), layout)
    return str(caught.value)


def test_a_column_of_names_is_multiclass_in_alphabetical_order(tmp_path):
    table = read_label_table(write(tmp_path, "image,label,site\na,dog,X\nb,cat,Y\nc,dog,X\n"))
    assert table.labels.task is Task.MULTICLASS
    assert table.labels.classes == ("cat", "dog")
    assert table.labels.pattern.tolist() == [1, 0, 1]


def test_a_column_of_numbers_counts_from_zero_and_keeps_the_gaps(tmp_path):
    table = read_label_table(write(tmp_path, "label\n10\n2\n2\n"))
    assert table.labels.classes == tuple(map(str, range(11)))
    assert table.labels.pattern.tolist() == [10, 2, 2]


def test_joined_names_are_multilabel_and_no_finding_is_no_class(tmp_path):
    text = "Image Index,Finding Labels,Patient ID\na,No Finding,1\nb,Mass|Hernia,1\nc,Mass,2\n"
    table = read_label_table(write(tmp_path, text))
    assert table.labels.classes == ("Hernia", "Mass")
    assert table.labels.as_array().tolist() == [[0, 0], [1, 1], [0, 1]]
    assert table.patients.tolist() == [0, 0, 1]


def test_columns_of_zero_and_one_are_found_by_themselves(tmp_path):
    text = "image,site,age,mass,hernia\na,X,50,0,1\nb,Y,60,1.0,0\n"
    table = read_label_table(write(tmp_path, text), Layout(clients="site"))
    assert table.labels.classes == ("mass", "hernia")
    assert table.labels.as_array().tolist() == [[0, 1], [1, 0]]
    assert table.clients == ("X", "Y")
    assert table.owners.tolist() == [0, 1]


CHEXPERT = (
    "Path,Frontal/Lateral,No Finding,Enlarged Cardiomediastinum,Edema\n"
    "p1,Frontal,1.0,,-1.0\np2,Frontal,,1.0,0.0\n"
)


@pytest.mark.parametrize(
    ("uncertain", "edema"), [(None, 0.0), ("zeros", 0.0), ("ones", 1.0), ("ignore", np.nan)]
)
def test_chexperts_uncertain_labels_go_by_policy_and_its_blanks_are_zero(
    tmp_path, uncertain, edema
):
    table = read_label_table(write(tmp_path, CHEXPERT), Layout(uncertain=uncertain))
    assert table.labels.classes == ("Enlarged Cardiomediastinum", "Edema")
    expected = np.array([[0, edema], [1, 0]])
    assert np.array_equal(table.labels.as_array(), expected, equal_nan=True)


def test_blanks_may_be_left_unknown(tmp_path):
    table = read_label_table(write(tmp_path, CHEXPERT), Layout(blank="ignore", uncertain="ones"))
    assert np.isnan(table.labels.as_array()[0, 0])


def test_a_single_column_of_marks_is_multilabel_if_so_told(tmp_path):
    path = write(tmp_path, "id,hernia\na,0\nb,1\n")
    layout = Layout(labels=("hernia",), task=Task.MULTILABEL)
    assert read_label_table(path, layout).labels.as_array().tolist() == [[0], [1]]
    assert read_label_table(path, Layout(labels=("hernia",))).labels.task is Task.MULTICLASS


def test_byte_order_mark_line_ends_quotes_blank_lines_and_gzip_make_no_difference(tmp_path):
    plain = 'image,label\na,"x, y"\nb,z\n'
    other = "\ufeff" + plain.replace("\n", "\r\n").replace("b,z", "\r\nb,z")
    packed = tmp_path / "labels.csv.gz"
    packed.write_bytes(gzip.compress(other.encode()))
    for path in (write(tmp_path, plain), write(tmp_path, other, "other.csv"), packed):
        table = read_label_table(path)
        assert table.labels.classes == ("x, y", "z")
        assert table.labels.pattern.tolist() == [0, 1]


def test_blanks_around_values_make_no_difference(tmp_path):
    table = read_label_table(
        write(tmp_path, "label,site\na , X\n a,X \nb,Y\n"), Layout(clients="site")
    )
    assert table.labels.pattern.tolist() == [0, 0, 1]
    assert table.owners.tolist() == [0, 0, 1]


def test_one_row_is_enough(tmp_path):
    assert len(read_label_table(write(tmp_path, "label\ncat\n")).labels) == 1


def test_ten_thousand_classes_are_read_in_either_form(tmp_path):
    many = "label\n" + "".join(f"class {number}\n" for number in range(10_000))
    assert len(read_label_table(write(tmp_path, many)).labels.classes) == 10_000
    head = ",".join(f"c{number}" for number in range(10_000))
    row = ",".join("01"[number % 2] for number in range(10_000))
    table = read_label_table(write(tmp_path, f"{head}\n{row}\n{row}\n"))
    assert table.labels.patterns.shape == (1, 10_000)
    assert table.labels.patterns.sum() == 5_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["is empty"]),
        ("\n\n", ["is empty"]),
        ("label\n", ["has no rows"]),
        ("label,label\na,b\n", ["line 1", "'label' twice"]),
        ("image,label\na,x\nb\n", ["line 3", "1 values for 2 columns"]),
        ("image,label\na,x\nb,y,z\n", ["line 3", "3 values for 2 columns"]),
        ("image,label\na,x\nb,\n", ["line 3", "column label", "no class"]),
        ('image,label\na,"x\n', ["line 2"]),
        ("name,age\np,old\nq,young\n", ["--label", "name, age"]),
    ],
)
def test_a_malformed_table_is_refused_with_its_place(tmp_path, text, words):
    message = refusal(tmp_path, text)
    assert "labels.csv" in message
    assert all(word in message for word in words)


@pytest.mark.parametrize(
    ("mark", "words"), [("-1", "--uncertain"), ("", "--blank"), ("many", "allowed: 0 and 1")]
)
def test_a_mark_without_a_policy_is_refused_with_line_and_column(tmp_path, mark, words):
    message = refusal(tmp_path, f"a,b\n0,1\n1,1\n1,{mark}\n", Layout(labels=("a", "b")))
    assert "line 4, column b" in message
    assert words in message


def test_text_in_a_column_of_marks_is_refused_where_the_columns_were_guessed_too(tmp_path):
    message = refusal(
        tmp_path, "image,a,b\n" + "".join(f"{n},0,1\n" for n in range(30)) + "x,1,?\n"
    )
    assert "line 32, column b: the label is '?'" in message


def test_a_missing_column_is_refused_with_the_nearest_name(tmp_path):
    path = write(tmp_path, "image,label,site\na,x,1\n")
    for layout in (Layout(clients="sites"), Layout(labels=("lable",)), Layout(patient="patient")):
        with pytest.raises(DataError, match=r"no column .*image, label, site"):
            read_label_table(path, layout)


def test_a_name_on_two_lines_is_refused_with_both(tmp_path):
    rows = "".join(f"img{number},x\n" for number in range(20_000))
    message = refusal(tmp_path, f"image,label\n{rows}img7,y\n")
    assert "line 20002, column image: 'img7' is on line 9 already" in message


def test_names_may_repeat_where_no_column_names_the_rows(tmp_path):
    path = write(tmp_path, "image,label\na,x\na,y\n")
    assert len(read_label_table(path, Layout(identity="")).labels) == 2


def test_a_row_without_a_client_is_refused(tmp_path):
    message = refusal(tmp_path, "label,site\nx,A\ny, \n", Layout(clients="site"))
    assert "line 3, column site: there is no client" in message


def test_files_that_are_no_text_or_not_there_are_refused(tmp_path):
    with pytest.raises(DataError, match="UTF-8"):
        read_label_table(write(tmp_path, "label\ncafé\n", encoding="latin-1"))
    with pytest.raises(DataError, match="does not exist"):
        read_label_table(tmp_path / "nowhere.csv")
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(gzip.compress(b"label\nx\n" * 1000)[:-9])
    with pytest.raises(DataError, match="cannot read"):
        read_label_table(broken)


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.text(min_size=1).filter(lambda text: text.strip()), st.integers(0, 2)),
        min_size=1,
    )
)
def test_whatever_the_names_are_they_come_back(tmp_path_factory, pairs):
    target = io.StringIO()
    rows = [(name.replace("\0", "0").replace("|", "/"), site) for name, site in pairs]
    csv.writer(target).writerows([("label", "site"), *rows])
    path = tmp_path_factory.mktemp("csv") / "labels.csv"
    try:
        path.write_bytes(target.getvalue().encode())
    except UnicodeEncodeError:
        return
    table = read_label_table(path, Layout(labels=("label",), clients="site", task=Task.MULTICLASS))
    back = [table.labels.classes[place] for place in table.labels.pattern]
    assert back == [name.strip() for name, _ in rows]
    assert [int(table.clients[place]) for place in table.owners] == [site for _, site in rows]


def test_memory_grows_by_a_few_bytes_a_row(tmp_path):
    def peak(number):
        rows = "".join(f"patient-{n}/image.png,site {n % 7},{n % 2},0,1\n" for n in range(number))
        path = write(tmp_path, f"image,site,a,b,c\n{rows}")
        del rows
        tracemalloc.start()
        read_label_table(path, Layout(clients="site"))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    few, many = peak(20_000), peak(100_000)
    assert (many - few) / 80_000 < 64


def test_progress_is_told_up_to_the_size_of_the_file(tmp_path):
    path = write(tmp_path, "label\n" + "x\n" * 30_000)
    heard = []
    read_label_table(path, progress=lambda done, whole: heard.append((done, whole)))
    assert heard[-1] == (path.stat().st_size,) * 2


def test_labels_classes_clients_and_patients_are_read_and_images_are_not_needed(tmp_path):
    path = tmp_path / "labels.npz"
    np.savez(path, labels=[0, 1, 1], classes=["x", "y", "z"], site=["B", "A", "B"], who=[5, 5, 6])
    table = read_label_arrays(path, Layout(clients="site", patient="who"))
    assert table.labels.classes == ("x", "y", "z")
    assert table.clients == ("A", "B")
    assert table.owners.tolist() == [1, 0, 1]
    assert table.patients.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("arrays", "layout", "words"),
    [
        ({"label": [0]}, Layout(), "did you mean label"),
        ({"labels": [0, 1], "site": ["a"]}, Layout(clients="site"), r"site has shape \(1,\)"),
        ({"labels": [0, 1]}, Layout(clients="site"), "no array 'site'"),
        ({"labels": [[0, 3]]}, Layout(), "label 0, class 1 is 3"),
        ({"labels": np.array([{}])}, Layout(), "cannot read"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, arrays, layout, words):
    path = tmp_path / "labels.npz"
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=words):
        read_label_arrays(path, layout)


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    path = tmp_path / "labels.npz"
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match="cannot read"):
        read_label_arrays(path)
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(DataError, match="cannot read"):
        read_label_arrays(tmp_path / "single.npy")


def test_class_numbers_of_thousands_of_digits_are_names(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text(f"label\n7\n{'9' * 5000}\n12\n")
    assert read_label_table(path).labels.classes == ("7", "12", "9" * 5000)


@pytest.mark.parametrize("classes", [np.array("ab"), np.zeros(2, dtype=[("a", "i4")])])
def test_class_names_that_are_no_list_are_refused(tmp_path, classes):
    np.savez(tmp_path / "labels.npz", labels=np.array([0, 1]), classes=classes)
    with pytest.raises(DataError, match=r"labels\.npz: classes"):
        read_label_arrays(tmp_path / "labels.npz")
