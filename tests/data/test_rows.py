from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset, Subset, TensorDataset

from fedbb.data.dataset import Dataset
from fedbb.data.transforms import Augmentation
from fedbb.errors import DataError
from fedbb.records import Task

PIXELS = (np.arange(6 * 4 * 5 * 3) % 256).astype(np.uint8).reshape(6, 4, 5, 3)
FIRST = np.ascontiguousarray(PIXELS.transpose(0, 3, 1, 2))


class Rows(list):
    """A data set of torchvision's or Hugging Face's make: rows, and facts about them."""

    def __init__(self, rows, **facts) -> None:
        super().__init__(rows)
        self.__dict__.update(facts)


def pairs(images, labels=(0, 1, 2, 0, 1, 2), **facts) -> Rows:
    return Rows(zip(images, labels, strict=False), **facts)


def adapt(rows, test=None, task="multiclass", **how):
    return Dataset.from_torch(rows, rows if test is None else test, name="theirs", task=task, **how)


def as_pil(pixels):
    return [Image.fromarray(image) for image in pixels]


def test_pillow_arrays_and_tensors_give_the_same_data_set() -> None:
    tensors = [torch.from_numpy(image.transpose(2, 0, 1).copy()) for image in PIXELS]
    arrays = list(PIXELS.transpose(0, 3, 1, 2))
    for images, last in ((as_pil(PIXELS), None), (arrays, None), (tensors, None), (PIXELS, True)):
        dataset = adapt(pairs(images), channels_last=last)
        assert dataset.task is Task.MULTICLASS
        assert dataset.train.inputs.dtype == np.uint8
        assert np.array_equal(dataset.train.inputs, PIXELS.transpose(0, 3, 1, 2))
        assert dataset.train.labels.tolist() == [0, 1, 2, 0, 1, 2]


def test_tensors_of_fractions_stay_fractions() -> None:
    tensors = [torch.from_numpy(image.transpose(2, 0, 1) / 255) for image in PIXELS]
    dataset = adapt(pairs(tensors))
    assert dataset.train.inputs.dtype == np.float32
    assert dataset.mean == dataset.std == ()
    normal = adapt(pairs(tensors), normalize=True)
    assert normal.mean == pytest.approx((PIXELS / 255).mean(axis=(0, 1, 2)))
    assert normal.std == pytest.approx((PIXELS / 255).std(axis=(0, 1, 2)))


def test_grey_images_have_one_channel_and_among_color_ones_three() -> None:
    grey = PIXELS[..., 0]
    assert adapt(pairs(as_pil(grey))).train.inputs.shape == (6, 1, 4, 5)
    mixed = adapt(pairs([*as_pil(grey[:3]), *as_pil(PIXELS[3:])])).train.inputs
    assert mixed.shape == (6, 3, 4, 5)
    assert np.array_equal(mixed[0], np.stack([grey[0]] * 3))
    assert np.array_equal(mixed[5], PIXELS[5].transpose(2, 0, 1))


@pytest.mark.parametrize("mode", ["P", "RGBA", "LA", "CMYK"])
def test_other_modes_of_pillow_become_color(mode) -> None:
    images = [image.convert(mode) for image in as_pil(PIXELS)]
    assert adapt(pairs(images)).channels == 3


def test_black_and_white_images_use_the_full_range() -> None:
    images = [Image.fromarray(PIXELS[0, ..., 0] > 20)] * 6
    assert set(np.unique(adapt(pairs(images)).train.inputs)) == {0, 255}


def test_rows_by_name_keep_further_facts() -> None:
    rows = [
        {"img": image, "fine_label": number % 3, "site": number % 2, "other": None}
        for number, image in enumerate(as_pil(PIXELS))
    ]
    dataset = adapt(rows, label_key="fine_label", columns=["site"])
    assert dataset.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert dataset.train.columns["site"].tolist() == ["0", "1", "0", "1", "0", "1"]


def test_class_names_are_given_or_asked_or_numbered() -> None:
    images = as_pil(PIXELS)
    named = {"label": SimpleNamespace(names=["a", "b", "c", "d"])}
    assert adapt(pairs(images, classes=["x", "y", "z"])).classes == ("x", "y", "z")
    assert adapt(pairs(images, features=named)).classes == ("a", "b", "c", "d")
    assert adapt(pairs(images)).classes == ("0", "1", "2")
    assert adapt(pairs(images, classes=list("xyz")), classes=tuple("uvw")).classes == (
        "u",
        "v",
        "w",
    )
    more = pairs(images[:1], [5])
    assert len(adapt(pairs(images), more).classes) == 6


@pytest.mark.parametrize("kind", [np.int32, torch.tensor, int, np.uint8])
def test_labels_are_numbers_of_any_make(kind) -> None:
    labels = [kind(number) for number in (2, 1, 0, 1, 2, 0)]
    assert adapt(pairs(as_pil(PIXELS), labels)).train.labels.tolist() == [2, 1, 0, 1, 2, 0]


def test_labels_may_be_names_of_known_classes() -> None:
    names = ["dog", "cat"] * 3
    dataset = adapt(pairs(as_pil(PIXELS), names), classes=("cat", "dog"))
    assert dataset.train.labels.tolist() == [1, 0] * 3
    with pytest.raises(DataError, match=r"theirs train row 1: 'cat' is not a class"):
        adapt(pairs(as_pil(PIXELS), names), classes=("dog", "cow"))


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_multi_label_rows_are_marks(kind) -> None:
    marks = [kind([0, 1]), kind([1, 1])] * 3
    dataset = adapt(pairs(as_pil(PIXELS), marks), task=Task.MULTILABEL)
    assert dataset.task is Task.MULTILABEL
    assert dataset.train.labels.tolist() == [[0, 1], [1, 1]] * 3
    assert dataset.train.labels.dtype == np.float32
    assert dataset.classes == ("0", "1")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "theirs train set is empty"),
        ([7], r"row 0 is int; expected \(input, label\) or a mapping"),
        ([(FIRST[0], 1, 2)], "row 0 is tuple of 3; expected .* `columns` names"),
        ([{"picture": FIRST[0], "label": 1}], "row 0 has no 'image'"),
        ([{"image": FIRST[0], "class": 1}], "row 0 has no 'label'"),
        (pairs([FIRST[0], FIRST[1, :, :3]]), r"row 1 is uint8 of shape \(3, 3, 5\).*must agree"),
        (pairs([FIRST[0], FIRST[1] / 255]), "row 1 is float32 of shape .*must agree"),
        (pairs([[5, 2], [3, 1, 4]]), r"row 1 is int64 of shape \(3,\).*resize, pad or convert"),
        (pairs([np.zeros((8, 8, 3), np.uint8)]), "row 0: the input .* state channels_last=True"),
        (pairs([np.float32(2.5)]), r"inputs have shape \(1,\)"),
        (pairs([FIRST[0] * 1j]), "row 0: the input holds complex128"),
        (pairs(["some text"]), "row 0: the input holds <U9; inputs must be numbers"),
        (pairs([[[1], [1, 2]]]), "must be arrays"),
        (pairs([FIRST[0] * np.nan]), "train input 0 holds NaN"),
        (pairs(FIRST, [0, 1, 2.5]), "row 2: the label 2.5 is neither a class number"),
        (pairs(FIRST, [0, None]), "row 1: the label None is neither a class number"),
        (pairs(FIRST, [0, "dog"]), r"row 1 is <U3 of shape \(\), row 0 is int64"),
        (pairs(FIRST, [0, -1]), "train label 1 is -1"),
        (pairs(FIRST, [0, 3], classes=["a", "b"]), "train label 1 is 3; allowed: 0 to 1"),
        (pairs(FIRST, [[0, 1], [1, 0]]), "multi-class labels are one whole number"),
    ],
)
def test_what_does_not_fit_is_refused_by_row(rows, message) -> None:
    with pytest.raises(DataError, match=message):
        adapt(rows)


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(DataError, match=r"unknown task 'multi-class'; did you mean multiclass\?"):
        adapt(pairs(FIRST), task="multi-class")


def test_what_follows_the_label_in_a_tuple_is_named_by_columns() -> None:
    rows = [(image, number % 2, number % 3) for number, image in enumerate(FIRST)]
    assert adapt(rows, columns=["site"]).train.columns["site"].tolist() == list("012012")
    with pytest.raises(DataError, match=r"tuple of 2; expected \(input, label, site\)"):
        adapt(pairs(FIRST), columns=["site"])


KINDS_OF_INPUTS = {
    "vectors": ((7,), torch.float64, np.float32),
    "half precision": ((7,), torch.float16, np.float32),
    "bfloat16": ((7,), torch.bfloat16, np.float32),
    "signals": ((2, 30), torch.float32, np.float32),
    "two-channel images": ((2, 5, 4), torch.uint8, np.uint8),
    "volumes": ((1, 4, 5, 6), torch.float32, np.float32),
    "token ids": ((9,), torch.int64, np.int64),
    "short token ids": ((9,), torch.int32, np.int32),
    "small whole numbers": ((9,), torch.int16, np.int64),
}


def tensors(shape, dtype, rows=6):
    return (torch.arange(rows * int(np.prod(shape))) % 50).reshape(rows, *shape).to(dtype)


@pytest.mark.parametrize("kind", KINDS_OF_INPUTS)
def test_inputs_keep_their_shape_and_values_whatever_the_data_set(kind) -> None:
    shape, dtype, kept = KINDS_OF_INPUTS[kind]
    given, labels = tensors(shape, dtype), torch.tensor([0, 1, 2, 0, 1, 2])
    rows = [{"x": one, "y": int(label)} for one, label in zip(given, labels, strict=True)]
    whole = TensorDataset(given, labels)
    for data in (whole, Subset(whole, range(6)), rows, list(zip(given, labels, strict=True))):
        made = Dataset.from_torch(data, data)
        assert made.task is Task.MULTICLASS
        assert made.input_shape == shape
        assert made.train.inputs.dtype == kept
        assert made.train.inputs.tolist() == given.tolist()
        assert made.mean == made.std == ()
    arrays = Dataset.from_arrays(given, labels, given, labels)
    assert np.array_equal(arrays.train.inputs, made.train.inputs)
    assert arrays.train.labels.tolist() == labels.tolist()


def test_truth_values_are_kept_as_full_bytes() -> None:
    made = adapt(pairs([np.array([True, False])] * 6))
    assert made.train.inputs.dtype == np.uint8
    assert made.train.inputs[0].tolist() == [255, 0]


def test_deep_images_of_pillow_become_fractions_not_token_ids() -> None:
    deep = Image.fromarray(np.full((4, 5), 40_000, np.int32))
    made = adapt(pairs([deep] * 6)).train.inputs
    assert made.shape == (6, 1, 4, 5)
    assert made.dtype == np.float32
    assert made.max() == 40_000


def test_numbers_beyond_int64_are_refused() -> None:
    with pytest.raises(DataError, match=r"row 0: the input holds .* beyond int64"):
        adapt(pairs([np.array([2**64 - 1], dtype=np.uint64)]))


def test_a_subset_knows_the_classes_of_the_whole() -> None:
    whole = pairs(FIRST, classes=["x", "y", "z"])
    assert adapt(Subset(whole, [0, 1]), Subset(whole, [2])).classes == ("x", "y", "z")
    assert adapt(pairs(FIRST, classes=3)).classes == ("0", "1", "2")


def test_text_labels_become_classes_in_sorted_order() -> None:
    train = pairs(FIRST, ["cow", "ant", "bee"] * 2)
    made = adapt(train, pairs(FIRST, ["dog"] * 6), task=None)
    assert made.classes == ("ant", "bee", "cow", "dog")
    assert made.train.labels.tolist() == [2, 0, 1] * 2
    assert made.test.labels.tolist() == [3] * 6


def test_the_task_follows_from_the_labels() -> None:
    rows = [[0.0, 1.0], [1.0, float("nan")]] * 3
    made = adapt(pairs(FIRST, rows), task=None)
    assert made.task is Task.MULTILABEL
    assert made.classes == ("0", "1")
    single = pairs(FIRST, [np.array([number % 2]) for number in range(6)])  # as in MedMNIST
    assert adapt(single, task=None).train.labels.tolist() == [0, 1] * 3
    assert adapt(single, task="multilabel").train.labels.tolist() == [[0], [1]] * 3
    assert adapt(pairs(FIRST, [True, False] * 3), task=None).train.labels.tolist() == [1, 0] * 3


def test_a_vector_is_normalized_by_feature() -> None:
    inputs = np.array([[0.0, 10.0], [2.0, 30.0], [4.0, 20.0]])
    made = Dataset.from_arrays(inputs, [0, 1, 0], inputs, [0, 1, 0], normalize=True)
    assert made.mean == pytest.approx(inputs.mean(axis=0))
    assert made.std == pytest.approx(inputs.std(axis=0))
    with pytest.raises(DataError, match="arrays holds whole numbers"):
        Dataset.from_arrays(inputs.astype(int), [0, 1, 0], test_share=0.4, normalize=True)


def test_an_augmentation_is_for_images_only() -> None:
    augmentation = Augmentation(flip=True)
    assert adapt(pairs(FIRST), augmentation=augmentation).augmentation == augmentation
    with pytest.raises(DataError, match="not images"):
        adapt(pairs([np.zeros(4)] * 6), augmentation=augmentation)


def test_a_share_is_held_out_where_there_is_no_test_set() -> None:
    inputs, labels = np.arange(40.0)[:, None], np.arange(40) % 2
    patients = np.arange(40) // 4
    made = Dataset.from_arrays(
        inputs, labels, columns={"patient": patients}, test_share=0.25, group="patient"
    )
    everything = np.concatenate([made.train.inputs, made.test.inputs])
    assert sorted(everything.ravel().tolist()) == list(range(40))
    assert len(made.test) in (8, 12)
    assert not set(made.train.columns["patient"]) & set(made.test.columns["patient"])
    rows = TensorDataset(torch.from_numpy(inputs), torch.from_numpy(labels))
    first, again, other = (
        Dataset.from_torch(rows, test_share=0.25, seed=seed).test.inputs.tolist()
        for seed in (0, 0, 1)
    )
    assert len(first) == 10
    assert first == again != other


def test_test_data_are_given_once() -> None:
    with pytest.raises(DataError, match="needs test data, or test_share"):
        Dataset.from_torch(pairs(FIRST))
    with pytest.raises(DataError, match="it has both"):
        adapt(pairs(FIRST), test_share=0.5)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(pairs(FIRST))


def test_a_stream_is_refused() -> None:
    with pytest.raises(DataError, match="theirs train is Stream; needed: a map-style data set"):
        adapt(Stream())


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (np.zeros(4), [0, 1, 0, 1], r"inputs have shape \(4,\)"),
        (np.zeros((4, 2)), [0, 1, 0], "4 inputs but 3 labels"),
        (np.zeros((4, 2)), [0, 1, None, 1], "labels are object"),
        (np.zeros((4, 2)), [0.0, 1.0, 0.0, 1.0], "labels are float32 of shape"),
        (np.zeros((4, 8, 8, 3), np.uint8), [0, 1, 0, 1], "state channels_last=True"),
        (np.zeros((4, 2)), None, "labels are object"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(inputs, labels, message) -> None:
    with pytest.raises(DataError, match=message):
        Dataset.from_arrays(inputs, labels, inputs, labels)


def test_channels_of_arrays_are_moved_if_asked() -> None:
    labels = [0, 1, 2, 0, 1, 2]
    made = Dataset.from_arrays(PIXELS, labels, PIXELS, labels, channels_last=True)
    assert np.array_equal(made.train.inputs, FIRST)
    with pytest.raises(DataError, match="no axis of channels"):
        Dataset.from_arrays(np.zeros((6, 3)), labels, test_share=0.5, channels_last=True)


def test_a_class_number_far_above_the_number_of_samples_is_refused() -> None:
    with pytest.raises(DataError, match=r"arrays test label 1 is 1000000000; .* name all classes"):
        Dataset.from_arrays(np.zeros((2, 3)), [0, 1], np.zeros((2, 3)), [0, 10**9])
    many = Dataset.from_arrays(np.zeros((2, 3)), [0, 999], np.zeros((1, 3)), [1])
    assert len(many.classes) == 1000
