"""Networks that a user might bring, none of which knows this package."""

import torch
from torch import nn


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
