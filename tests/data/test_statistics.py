import numpy as np
import pytest

import fedbb
from fedbb.data.statistics import ChannelSums, channel_sums, federated_statistics
from fedbb.data.transforms import channel_statistics
from fedbb.errors import DataError
from fedbb.runs.federation import prepare

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    "inputs",
    [
        RNG.normal(40, 3, (50, 4)).astype(np.float32),
        RNG.integers(0, 256, (50, 3, 5, 6), dtype=np.uint8),
        RNG.normal(0, 1e-3, (50, 2, 7)).astype(np.float32),
    ],
)
def test_sums_of_clients_give_the_statistics_of_the_pooled_data(inputs) -> None:
    parts = np.split(inputs, [3, 4, 30])
    mean, std = federated_statistics(channel_sums(part) for part in parts)
    pooled = channel_statistics(inputs)
    assert mean == pytest.approx(pooled[0], rel=1e-9, abs=1e-12)
    assert std == pytest.approx(pooled[1], rel=1e-9)


def test_a_channel_that_never_changes_has_deviation_one() -> None:
    inputs = np.full((9, 2), 0.1, np.float32)
    inputs[:, 1] = 12345.678
    assert federated_statistics([channel_sums(inputs)])[1] == (1.0, 1.0)


def test_vectors_can_be_added_without_seeing_any() -> None:
    parts = [RNG.normal(size=(n, 3)).astype(np.float32) for n in (2, 9, 4)]
    summed = sum(channel_sums(part).as_vector() for part in parts)
    whole = ChannelSums.from_vector(summed)
    assert whole.count == 15
    assert federated_statistics([whole]) == federated_statistics(map(channel_sums, parts))
    with pytest.raises(DataError, match=r"2 · channels \+ 1 numbers"):
        ChannelSums.from_vector(np.zeros(4))
    with pytest.raises(DataError, match="same number of channels"):
        federated_statistics([channel_sums(parts[0]), channel_sums(parts[0][:, :2])])
    with pytest.raises(DataError, match="need clients"):
        federated_statistics([])


def recipe(**data):
    return fedbb.Recipe.model_validate(
        {
            "engine": "inline",
            "data": {"name": "digits", "partition": {"kind": "even", "clients": 3}, **data},
            "method": {"name": "fedavg"},
        },
        strict=False,
    )


def test_a_recipe_chooses_the_normalization() -> None:
    own, training, federated, none = (
        prepare(recipe(train_images=90, **({"normalize": how} if how else {}))).dataset
        for how in (None, "training", "federated", "none")
    )
    assert (own.mean, own.std) == (training.mean, training.std)  # of all digits, before the draw
    assert none.mean == none.std == ()
    pooled = channel_statistics(federated.train.inputs)
    assert federated.mean == pytest.approx(pooled[0])
    assert federated.std == pytest.approx(pooled[1])
    assert federated.mean != own.mean


def test_a_recipe_chooses_the_augmentation() -> None:
    dataset = prepare(recipe(crop=2, flip=True)).dataset
    assert dataset.augmentation == fedbb.data.Augmentation(crop=2, flip=True)
    dataset = prepare(recipe(crop=2, padding="reflect")).dataset
    assert dataset.augmentation == fedbb.data.Augmentation(crop=2, padding="reflect")
    assert prepare(recipe()).dataset.augmentation == fedbb.data.Augmentation()
    with pytest.raises(DataError, match="cannot be cropped or flipped"):
        prepare(recipe(name="breast-cancer", flip=True))
    assert prepare(recipe(crop=7, padding="reflect")).dataset.augmentation.crop == 7
    with pytest.raises(DataError, match="cannot be cropped by 8 with reflected padding"):
        prepare(recipe(crop=8, padding="reflect"))


def test_marks_of_categories_stay_as_they_are() -> None:
    rows = {"x": [1.0, 2.0, 3.0, 6.0], "c": ["a", "b", "a", "b"], "y": [0, 1, 0, 1]}
    data = fedbb.Dataset.from_frame(rows, "y", rows)
    found = data.normalized([np.array([0, 1]), np.array([2, 3])])
    assert found.mean == pytest.approx(data.mean)
    assert found.mean[1:] == (0.0, 0.0)
    assert found.std[1:] == (1.0, 1.0)
