import pickle

import numpy as np
import pytest

from fedbb.data.registry import load_dataset
from fedbb.errors import DataError
from fedbb.records import Task

IMAGES = (np.arange(20 * 5 * 6) % 256).astype(np.uint8).reshape(20, 5, 6)
LABELS = np.arange(20) % 4
SPLIT = np.array(["train", "test"] * 10)
MARKS = (np.arange(60).reshape(20, 3) % 4 == 0).astype(np.int8)


@pytest.fixture
def load(tmp_path):
    def write_and_load(options=None, seed=0, **arrays):
        path = tmp_path / "mine.npz"
        np.savez(path, **({"images": IMAGES, "labels": LABELS} | arrays))
        return load_dataset("npz", path=path, seed=seed, options=options)

    return write_and_load


def test_images_and_labels_are_enough(load) -> None:
    dataset = load()
    assert dataset.name == "mine"
    assert dataset.task is Task.MULTICLASS
    assert dataset.classes == ("0", "1", "2", "3")
    assert len(dataset.train) == 16
    assert len(dataset.test) == 4
    together = np.concatenate([dataset.train.inputs, dataset.test.inputs])[:, 0]
    assert np.array_equal(np.unique(together, axis=0), np.unique(IMAGES, axis=0))
    assert dataset.mean == pytest.approx(((dataset.train.inputs / 255).mean(),))


def test_the_test_share_is_drawn_by_the_seed(load) -> None:
    first, again, other = (load(seed=seed).test.inputs.tolist() for seed in (0, 0, 1))
    assert first == again != other
    assert len(load(options={"test_share": 0.5}).test) == 10


def test_labels_of_two_dimensions_are_multi_label(load) -> None:
    dataset = load(labels=MARKS, classes=np.array(["edema", "mass", "nodule"]))
    assert dataset.task is Task.MULTILABEL
    assert dataset.classes == ("edema", "mass", "nodule")
    assert dataset.train.labels.dtype == np.float32
    assert load(labels=MARKS).classes == ("0", "1", "2")


def test_labels_may_be_names(load) -> None:
    names = np.array(["dog", "cat"] * 10)
    dataset = load(labels=names, row=np.arange(20))
    assert dataset.classes == ("cat", "dog")
    rows = dataset.train.columns["row"].astype(int)
    assert [dataset.classes[label] for label in dataset.train.labels] == names[rows].tolist()
    given = load(labels=names, classes=np.array(["dog", "bird", "cat"]))
    assert given.classes == ("dog", "bird", "cat")
    with pytest.raises(DataError, match=r"labels\[1\] is 'cat', no class"):
        load(labels=names, classes=np.array(["dog", "bird"]))


def test_further_arrays_of_the_same_length_are_columns(load) -> None:
    dataset = load(
        site=np.array(["a", "b"] * 10), patient=np.arange(20) // 2, weight=np.ones(20), odd=[1, 2]
    )
    assert set(dataset.train.columns) == {"site", "patient"}
    assert len(dataset.train.columns["site"]) == 16
    assert dataset.train.columns["patient"].dtype.kind == "U"


def test_no_patient_is_on_both_sides_if_a_group_is_named(load) -> None:
    for seed in range(5):
        dataset = load({"group": "patient"}, seed=seed, patient=np.arange(20) // 4)
        patients = (set(part.columns["patient"]) for part in (dataset.train, dataset.test))
        assert set.isdisjoint(*patients)


def test_test_arrays_are_used_as_they_are(load) -> None:
    dataset = load(
        test_images=IMAGES[:3],
        test_labels=np.array([0, 1, 5]),
        site=np.array(["a"] * 20),
        test_site=np.array(["b"] * 3),
    )
    assert len(dataset.train) == 20
    assert dataset.test.labels.tolist() == [0, 1, 5]
    assert len(dataset.classes) == 6
    assert dataset.test.columns["site"].tolist() == ["b"] * 3


def test_a_split_array_says_which_are_for_testing(load) -> None:
    split = np.array(["train", "test", "val", "train"] * 5)
    dataset = load({"leave_out": ["val"]}, split=split)
    assert len(dataset.train) == 10
    assert len(dataset.test) == 5
    assert dataset.validation is None
    dataset = load(split=split)
    assert len(dataset.validation) == 5
    with pytest.raises(DataError, match=r"mine\.npz: split\[1\]: the split is 'other'"):
        load(split=np.where(split == "test", "other", split))


@pytest.mark.parametrize(
    ("policy", "value"), [("zeros", 0.0), ("ones", 1.0), ("ignore", float("nan"))]
)
def test_uncertain_labels_follow_the_policy(load, policy, value) -> None:
    marks = MARKS.copy()
    marks[:, 1] = -1
    dataset = load({"uncertain": policy}, labels=marks)
    assert np.array_equal(dataset.train.labels[:, 1], np.full(16, value), equal_nan=True)
    with pytest.raises(DataError, match=r"labels\[0, 1\] is −1; set the option uncertain"):
        load(labels=marks)


def test_labels_that_nobody_knows_stay_unknown(load) -> None:
    marks = MARKS.astype(float)
    marks[:, 0] = np.nan
    assert np.isnan(load(labels=marks).train.labels[:, 0]).all()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.where(LABELS == 3, -1, LABELS)}, r"mine\.npz label 3 is -1"),
        (
            {"classes": np.array(["a", "b", "c"])},
            r"mine\.npz label 3 is 3; allowed: 0 to 2 \(5 labels outside\)",
        ),
        ({"labels": LABELS[:19]}, "20 inputs but 19 labels"),
        ({"labels": LABELS / 2}, "labels is float64"),
        ({"labels": MARKS + 1}, r"label 0 of class 0 is 2"),
        ({"labels": MARKS[None]}, "labels have shape"),
        ({"images": np.full((20, 4, 4), np.nan)}, r"mine\.npz input 0 holds NaN"),
        ({"images": IMAGES.astype(np.int64) * 300}, "0 to 255"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "labels is int64 of shape"),
        ({"images": IMAGES[0]}, "has shape"),
        ({"images": np.zeros((20, 3, 3, 3), np.uint8)}, "set the layout"),
        ({"test_images": IMAGES[:2]}, "must come together"),
        ({"test_images": IMAGES[:2, :4], "test_labels": LABELS[:2]}, "but tests on"),
        ({"split": np.array(["train"] * 20)}, "test set is empty"),
        ({"split": SPLIT[:19]}, r"mine\.npz: split has shape \(19,\); needed: \(20,\)"),
        ({"split": np.append(SPLIT, "test")}, r"split has shape \(21,\)"),
        ({"split": SPLIT[:, None]}, r"split has shape \(20, 1\)"),
        ({"split": np.array("train")}, r"split has shape \(\)"),
        ({"split": np.ones(20, dtype=complex)}, "split is complex128; needed: text"),
        ({"classes": np.array("abcd")}, r"classes has shape \(\)"),
        ({"classes": np.array([["a", "b"], ["c", "d"]])}, r"classes has shape \(2, 2\)"),
        ({"classes": np.zeros(4, dtype=[("a", "i4")])}, "classes is .*; needed: text"),
        ({"classes": np.array([b"\xff", b"b", b"c", b"d"])}, "classes cannot be read as text"),
        ({"classes": np.array(["a", "a", "b", "c"])}, "names the class 'a' twice"),
        (
            {"labels": np.where(LABELS == 3, 10**9, LABELS)},
            r"label 3 is 1000000000; .* at most 1,000 .* name all",
        ),
        ({"labels": np.where(LABELS == 3, 2**63, LABELS.astype(np.uint64))}, "label 3 is 9223"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_by_place(load, arrays, message) -> None:
    with pytest.raises(DataError, match=message):
        load(**arrays)


def test_a_missing_array_is_named_with_the_nearest(tmp_path) -> None:
    np.savez(tmp_path / "mine.npz", image=IMAGES, labels=LABELS)
    with pytest.raises(DataError, match=r"no array 'images'; did you mean image\?"):
        load_dataset("npz", path=tmp_path / "mine.npz")


def test_objects_are_refused_without_being_unpickled(tmp_path, load) -> None:
    with pytest.raises(DataError, match=r"cannot read .*mine\.npz"):
        load(labels=np.array([{}] * 20))
    (tmp_path / "bad.npz").write_bytes(pickle.dumps({"images": 1}))
    with pytest.raises(DataError, match=r"cannot read .*bad\.npz"):
        load_dataset("npz", path=tmp_path / "bad.npz")


def test_a_zip_file_of_an_unusual_kind_is_refused_by_name(tmp_path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, images=IMAGES, labels=LABELS)
    whole = path.read_bytes()
    start = whole.index(b"PK\x01\x02")
    for place, value in ((8, 1), (10, 99)):  # encrypted; of an unknown compression
        path.write_bytes(whole[: start + place] + bytes([value]) + whole[start + place + 1 :])
        with pytest.raises(DataError, match=r"cannot read .*mine\.npz as \.npz"):
            load_dataset("npz", path=path)


def test_a_file_that_is_damaged_or_no_npz_is_refused_by_name(tmp_path) -> None:
    path = tmp_path / "mine.npz"
    np.savez_compressed(path, images=IMAGES, labels=LABELS)
    whole = path.read_bytes()
    single = tmp_path / "single.npy"
    np.save(single, IMAGES)
    for content in (b"", b"text", whole[:200], whole[:-30], single.read_bytes()):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cannot read .*mine\.npz as \.npz"):
            load_dataset("npz", path=path)
    with pytest.raises(DataError, match="nowhere"):
        load_dataset("npz", path=tmp_path / "nowhere")
    with pytest.raises(DataError, match="needs a path"):
        load_dataset("npz")
