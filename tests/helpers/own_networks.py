"""Networks that a user might bring, none of which knows this package, and recipes with them."""

import numpy as np
import torch
from torch import nn

import fedbb
from helpers.digest_runs import CLIENTS, recipe_of
from helpers.installed import install

HERE = "helpers.own_networks:"
MONAI = {"spatial_dims": 2, "in_channels": 1, "out_channels": 3, "block_config": [1, 1]}
MONAI |= {"init_features": 8, "growth_rate": 4, "dropout_prob": 0.1}
TIMM = {"model_name": "test_resnet", "num_classes": 3, "in_chans": 1, "drop_rate": 0.1}
NETWORKS = {
    "plain": {"name": HERE + "plain"},
    "regularized": {"name": HERE + "Regularized"},
    "tied": {"name": HERE + "Tied"},
    "frozen": {"name": HERE + "Regularized", "freeze": ["conv.*", "norm.weight"]},
    "lazy": {"name": HERE + "lazy"},
    "tokens": {"name": HERE + "words"},
    "mlp": {"name": "mlp", "options": {"hidden": [12], "dropout": 0.2}},
    "monai": {"name": "monai.networks.nets:DenseNet", "options": MONAI},
    "timm": {"name": "timm:create_model", "options": TIMM},
}
TOKENS = {"name": "token-ids", "partition": {"kind": "even", "clients": CLIENTS}}


def own_recipe(folder, network, method="fedbb", **changes):
    """Return a small recipe with one of the networks; that of token ids has data of its own."""
    if network == "tokens":
        changes = {"data": TOKENS, **changes}
    return recipe_of(folder, f"multiclass {method}", model=NETWORKS[network], **changes)


def install_tokens(folder, monkeypatch):
    """Register the data set of token ids, as an installed package would."""
    install(folder, monkeypatch, "token_sets", "", datasets=f"token-ids = {HERE}token_ids")


def token_ids(source):
    """Return sequences of token ids, the first of which tells the class."""
    labels = np.arange(80) % 3
    inputs = np.random.default_rng(source.seed).integers(0, 12, (80, 5))
    inputs[:, 0] = labels
    rows = (inputs[:60], labels[:60], inputs[60:], labels[60:])
    return fedbb.Dataset.from_arrays(*rows, name="token-ids")


class Regularized(nn.Module):
    """Batch norm, dropout, and buffers of several types."""

    def __init__(self, classes, channels=1):
        super().__init__()
        self.conv = nn.Conv2d(channels, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.3)
        self.hidden = nn.Linear(8, 8)
        self.flat = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, classes)
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int32))
        self.register_buffer("scale", torch.ones(2, dtype=torch.float16))
        self.register_buffer("phase", torch.ones(2, dtype=torch.complex64))
        self.register_buffer("brain", torch.ones(2, dtype=torch.bfloat16))

    def forward(self, images):
        maps = self.drop(torch.relu(self.norm(self.conv(images))))
        return self.head(torch.relu(self.flat(self.hidden(maps.mean(dim=(2, 3))))))


class Tied(nn.Module):
    """Two layers that share their weights, and a parameter that gets no gradient."""

    def __init__(self, classes):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.unused = nn.Parameter(torch.ones(3))
        self.head = nn.Linear(64, classes)

    def forward(self, images):
        hidden = torch.relu(self.first(images.flatten(1)))
        return {"logits": self.head(torch.relu(self.second(hidden)))}


def plain(classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, classes))


def lazy(classes):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(16), nn.Tanh(), nn.LazyLinear(classes))


def words(classes):
    return nn.Sequential(nn.Embedding(12, 8), nn.Flatten(), nn.Dropout(0.1), nn.LazyLinear(classes))


def inverse(counts):
    """Return a loss that weighs classes by the inverse of their counts."""
    return nn.CrossEntropyLoss(weight=1 / torch.tensor(counts.positive).clamp(min=1).float())
