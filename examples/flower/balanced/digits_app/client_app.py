"""The client app: train and test on the digits of a site."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from digits_app.task import Net, load_data
from fedbb import PNBLoss
from fedbb.flower import report_label_statistics

app = ClientApp(mods=[report_label_statistics(lambda context: load_data(context)[1], classes=10)])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model that came and send it back."""
    x, y, _, _ = load_data(context)
    model = _model_in(message)
    epochs = int(context.run_config["local-epochs"])
    rate = float(message.content["config"]["lr"])
    loss = _train(model, x, y, epochs, rate)
    metrics = MetricRecord({"train-loss": loss, "num-examples": len(x)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the model that came."""
    _, _, x, y = load_data(context)
    model = _model_in(message)
    with torch.no_grad():
        right = int((model(x).argmax(dim=1) == y).sum())
    metrics = MetricRecord({"accuracy": right / len(x), "num-examples": len(x)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def _model_in(message: Message) -> nn.Module:
    model = Net()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return model


def _train(model: nn.Module, x: Tensor, y: Tensor, epochs: int, rate: float) -> float:
    """Return the mean loss of the last epoch."""
    criterion = PNBLoss.from_targets(y, classes=10, mu="unit")
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for _ in range(epochs):
        total = 0.0
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            loss = criterion(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
    return total / len(x)
