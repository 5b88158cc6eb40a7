"""PNBLoss and logit adjustment on masks: a class number per pixel, some without a label."""

import torch
from torch import Tensor, nn

from fedbb import LogitAdjustedLoss, PNBLoss

UNLABELLED = 255


def images_with_spots(number: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return noisy images (N, 1, 16, 16) and masks (N, 16, 16): background, band, rare spot."""
    generator = torch.Generator().manual_seed(seed)
    masks = torch.zeros(number, 16, 16, dtype=torch.uint8)
    masks[:, 10:13] = 1
    corners = torch.randint(8, (number, 2), generator=generator)
    for mask, (row, column) in zip(masks, corners, strict=True):
        mask[row : row + 2, column : column + 2] = 2
    images = masks.float() / 2 + 0.35 * torch.randn(masks.shape, generator=generator)
    masks[:, :, -1] = UNLABELLED
    return images.unsqueeze(1), masks


def train(loss: nn.Module, images: Tensor, masks: Tensor) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 3, padding=1)
    model = nn.Sequential(*layers)  # logits (N, 3, 16, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        loss(model(images), masks.long()).backward()
        optimizer.step()
    return model


images, masks = images_with_spots(32, seed=0)
test_images, test_masks = images_with_spots(64, seed=1)
for name, loss in (
    ("CE", nn.CrossEntropyLoss(ignore_index=UNLABELLED)),
    ("PNB", PNBLoss.from_targets(masks, ignore_index=UNLABELLED)),
    ("logit adjustment", LogitAdjustedLoss.from_targets(masks, ignore_index=UNLABELLED)),
):
    found = train(loss, images, masks)(test_images).argmax(dim=1)
    recall = (found == test_masks)[test_masks == 2].float().mean()
    print(f"{name}: recall of the pixels of the rare spot is {recall:.3f}")
