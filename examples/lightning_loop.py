"""PNBLoss in a Lightning module: the loss moves with the module, the checkpoint is the model's."""

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from fedbb import PNBLoss


class Digits(lightning.LightningModule):
    """A small network; the loss is built from the labels of the training set."""

    def __init__(self, labels: Tensor) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        self.loss = PNBLoss.from_targets(labels, classes=10)

    def training_step(self, batch: tuple[Tensor, Tensor], step: int) -> Tensor:
        """Return the loss of a batch."""
        x, y = batch
        return self.loss(self.net(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer, with the learning rate of cross-entropy."""
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


x, y = (torch.as_tensor(part) for part in load_digits(return_X_y=True))
x = x.float() / 16
model = Digits(y)
trainer = lightning.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True))
right = model.net(x).argmax(dim=1) == y
print(f"accuracy: {right.float().mean():.3f}")
print("saved:", *model.state_dict())
