"""Predictions for files: with labels, without, and with data that does not fit."""

import csv
import io
import json

import numpy as np
import pytest
from PIL import Image

from fedbb.data.registry import load_dataset
from fedbb.errors import DataError
from fedbb.inference.model import load_model
from fedbb.inference.prediction import ReadOptions, predict, read_samples, write_csv


@pytest.fixture(scope="module")
def model(folder):
    return load_model(folder)


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


def rows_of(predictions):
    file = io.StringIO()
    write_csv(predictions, file)
    return list(csv.DictReader(io.StringIO(file.getvalue())))


def save_images(folder, digits, number=6, *, classes=False):
    for row in range(number):
        place = folder / digits.classes[digits.test.labels[row]] if classes else folder
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(digits.test.inputs[row, 0]).save(place / f"{row}.png")


def test_a_data_set_by_name_has_the_scores_of_the_run(folder, model):
    found = predict(model, read_samples("digits", model.info))
    summary = json.loads((folder / "summary.json").read_text())
    expected = summary["final"]["scores"]["test"]["macro"]
    assert found.scores.macro["accuracy"] == pytest.approx(expected["accuracy"])
    assert found.scores.macro["auroc"] == pytest.approx(expected["auroc"], abs=1e-4)


def test_an_npz_without_labels_has_no_scores(tmp_path, model, digits):
    np.savez(tmp_path / "a.npz", images=digits.test.inputs[:4])
    found = predict(model, read_samples(tmp_path / "a.npz", model.info))
    rows = rows_of(found)
    assert found.scores is None
    assert list(rows[0]) == ["sample", "predicted", *(f"p({name})" for name in digits.classes)]
    assert [row["sample"] for row in rows] == ["0", "1", "2", "3"]
    chances = [float(rows[0][f"p({name})"]) for name in digits.classes]
    assert sum(chances) == pytest.approx(1, abs=1e-4)
    assert rows[0]["predicted"] == digits.classes[int(np.argmax(chances))]


def test_an_npz_with_class_names_in_another_order(tmp_path, model, digits):
    names = digits.classes[::-1]
    numbers = np.array([names.index(digits.classes[k]) for k in digits.test.labels[:30]])
    np.savez(
        tmp_path / "a.npz", images=digits.test.inputs[:30], labels=numbers, classes=np.array(names)
    )
    found = predict(model, read_samples(tmp_path / "a.npz", model.info))
    np.testing.assert_array_equal(found.labels, digits.test.labels[:30])


def test_a_folder_of_images(tmp_path, model, digits):
    save_images(tmp_path, digits)
    found = predict(model, read_samples(tmp_path, model.info))
    assert found.names == tuple(f"{row}.png" for row in range(6))
    np.testing.assert_allclose(
        found.probabilities, model.predict(digits.test.inputs[:6]), atol=1e-6
    )


def test_folders_named_by_classes_are_labels(tmp_path, model, digits):
    save_images(tmp_path, digits, 12, classes=True)
    found = predict(model, read_samples(tmp_path, model.info))
    right = [row["label"] == row["predicted"] for row in rows_of(found)]
    assert found.scores.macro["accuracy"] == pytest.approx(np.mean(right))


def test_a_class_that_the_model_does_not_know_is_named(tmp_path, model, digits):
    save_images(tmp_path, digits, 3, classes=True)
    (tmp_path / "letter").mkdir()
    Image.fromarray(digits.test.inputs[0, 0]).save(tmp_path / "letter" / "a.png")
    with pytest.raises(DataError, match=r"letter/a\.png: the model knows no class 'letter'"):
        read_samples(tmp_path, model.info)


def test_a_table_with_and_without_labels(tmp_path, model, digits):
    save_images(tmp_path, digits)
    truth = [digits.classes[k] for k in digits.test.labels[:6]]
    lines = [f"{row}.png,{name}" for row, name in enumerate(truth)]
    (tmp_path / "a.csv").write_text("\n".join(["image,label", *lines]) + "\n")
    (tmp_path / "b.csv").write_text("\n".join(["file", *(f"{row}.png" for row in range(6))]) + "\n")
    labelled = predict(model, read_samples(tmp_path / "a.csv", model.info))
    plain = predict(model, read_samples(tmp_path / "b.csv", model.info, ReadOptions("file")))
    assert [row["label"] for row in rows_of(labelled)] == truth
    assert plain.scores is None
    np.testing.assert_array_equal(labelled.probabilities, plain.probabilities)


def test_an_unknown_class_in_a_table_is_named_with_its_line(tmp_path, model, digits):
    save_images(tmp_path, digits, 1)
    (tmp_path / "a.csv").write_text("image,label\n0.png,cat\n")
    with pytest.raises(DataError, match=r"a\.csv: line 2, column label: 'cat' is not a class"):
        read_samples(tmp_path / "a.csv", model.info)


def test_images_of_another_size_are_refused_or_scaled(tmp_path, model):
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(tmp_path / "large.png")
    with pytest.raises(DataError, match="16 × 16 pixels, and the model takes 8 × 8; --resize"):
        read_samples(tmp_path / "large.png", model.info)
    found = read_samples(tmp_path / "large.png", model.info, ReadOptions(resize=True))
    assert found.inputs.shape == (1, 1, 8, 8)


def labelled(**changes):
    return {"images": np.zeros((1, 8, 8), np.uint8), "labels": np.array([0]), **changes}


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"images": np.zeros((2, 9, 9), np.uint8)}, "1 × 9 × 9"),
        ({"pixels": np.zeros((2, 8, 8), np.uint8)}, "called images or inputs"),
        ({"images": np.zeros((2, 8, 8), np.uint8), "labels": np.array([0])}, "2 inputs but 1"),
        ({"images": np.zeros((2, 8, 8), np.uint8), "labels": np.array([0, 10])}, "0 to 9"),
        ({"images": np.zeros((2, 8, 8), np.uint8), "labels": np.array(["0", "x"])}, "no class 'x'"),
        ({"images": np.zeros((1, 8, 8), np.uint8), "labels": np.zeros((1, 4))}, "one class for a"),
        (labelled(labels=np.array([b"\xff"])), "labels cannot be read as text"),
        (labelled(classes=np.array([b"\xff"])), "classes cannot be read as text"),
        (labelled(classes=np.array("0")), r"classes has shape \(\)"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, model, arrays, words):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=words):
        read_samples(tmp_path / "a.npz", model.info)


def test_what_is_no_data_is_refused(tmp_path, model):
    with pytest.raises(DataError, match=r"name of a data set; did you mean digits"):
        read_samples("digit", model.info)
    with pytest.raises(DataError, match="holds no images"):
        read_samples(tmp_path, model.info)
    with pytest.raises(DataError, match="digit-mosaic is multilabel, and the model is multiclass"):
        read_samples("digit-mosaic", model.info)


def test_multi_label_labels_that_are_no_numbers_are_refused(tmp_path, mosaics):
    info = load_model(mosaics).info
    images, labels = np.zeros((1, *info.input_shape), np.uint8), [["x"] * len(info.classes)]
    np.savez(tmp_path / "a.npz", images=images, labels=np.array(labels))
    with pytest.raises(DataError, match="labels are <U1; needed: numbers"):
        read_samples(tmp_path / "a.npz", info)


def test_multi_label_predictions_name_every_label_above_its_threshold(mosaics):
    model = load_model(mosaics)
    found = predict(model, read_samples("digit-mosaic", model.info))
    for said, chances in zip(found.predicted, found.probabilities, strict=True):
        assert set(said) == {
            name for name, chance in zip(model.classes, chances, strict=True) if chance > 0.5
        }
    expected = json.loads((mosaics / "summary.json").read_text())["final"]["scores"]["test"]
    assert found.scores.macro["auroc"] == pytest.approx(expected["macro"]["auroc"], abs=1e-4)


def test_a_table_of_labels_may_leave_some_unknown(tmp_path, mosaics):
    model = load_model(mosaics)
    image = load_dataset("digit-mosaic").test.inputs[0]
    Image.fromarray(np.moveaxis(image, 0, -1).squeeze()).save(tmp_path / "a.png")
    marks = ["1", "", *["0"] * (len(model.classes) - 2)]
    (tmp_path / "a.csv").write_text(f"image,{','.join(model.classes)}\na.png,{','.join(marks)}\n")
    labels = read_samples(tmp_path / "a.csv", model.info).labels
    assert labels[0, 0] == 1
    assert np.isnan(labels[0, 1])
