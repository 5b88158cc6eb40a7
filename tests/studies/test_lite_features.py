"""Features of a network's blocks, with a small network in place of the pretrained one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from studies.lite_features import BATCH, features_of
from torch import Tensor, nn

from fedbb.data import Examples


class Blocks(nn.Module):
    """Two blocks, and a head that adds one."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks = nn.ModuleList([nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 5, 3, stride=2)])

    def extract_features(self, inputs: Tensor) -> Tensor:
        for block in self._blocks:
            inputs = block(inputs)
        return inputs + 1


@pytest.fixture
def films() -> Examples:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (BATCH + 3, 1, 6, 6), dtype=np.uint8)
    return Examples(pixels, np.zeros(len(pixels), dtype=np.int64))


def test_features_are_the_means_of_the_last_maps(films) -> None:
    network = Blocks().eval()
    features = features_of(network, films, size=6)
    pixels = torch.tensor(films.inputs[7:8]).float().expand(-1, 3, -1, -1)
    with torch.inference_mode():
        maps = network.extract_features((pixels - 127.0) / 128.0)
    assert features.shape == (BATCH + 3, 5)
    assert features[7] == pytest.approx(maps.mean((2, 3))[0].numpy(), rel=1e-4)


def test_features_of_all_blocks_stand_side_by_side_in_their_order(films) -> None:
    network = Blocks().eval()
    every, last = features_of(network, films, 12, blocks=True), features_of(network, films, 12)
    assert every.shape == (BATCH + 3, 4 + 5)
    assert every[:, 4:] + 1 == pytest.approx(last, rel=1e-5)
    assert not any(block._forward_hooks for block in network._blocks)
