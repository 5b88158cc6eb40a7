"""Our normalization is torch's, except where torch refuses."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedbb.models.batch_norm import BatchNorm
from fedbb.rng import torch_stream


def warmed_up(kind: type[nn.BatchNorm2d]) -> nn.BatchNorm2d:
    """Return a normalization of three channels that has seen a batch."""
    with torch_stream(0, "test"):
        layer = kind(3)
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
        layer(2 + 3 * torch.randn(8, 3, 4, 4))
    return layer


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 3), height=st.integers(1, 3), width=st.integers(1, 3), train=st.booleans()
)
def test_it_equals_torch_bit_for_bit_wherever_torch_is_defined(
    batch: int, height: int, width: int, train: bool
) -> None:
    ours, theirs = warmed_up(BatchNorm).train(train), warmed_up(nn.BatchNorm2d).train(train)
    if train and batch * height * width == 1:
        theirs.eval()
    maps = torch.linspace(-1, 1, batch * 3 * height * width).reshape(batch, 3, height, width)
    assert torch.equal(ours(maps), theirs(maps))
    for name, buffer in ours.named_buffers():
        assert torch.equal(buffer, theirs.get_buffer(name)), name


def test_one_value_per_channel_leaves_the_statistics_alone_and_gives_gradients() -> None:
    layer = warmed_up(BatchNorm)
    before = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    maps = torch.tensor([1.0, 2.0, 3.0]).reshape(1, 3, 1, 1).requires_grad_()
    layer(maps).sum().backward()
    assert all(torch.equal(buffer, before[name]) for name, buffer in layer.named_buffers())
    expected = layer.weight / (layer.running_var + layer.eps).sqrt()
    torch.testing.assert_close(maps.grad.flatten(), expected.detach())
    assert torch.equal(layer.bias.grad, torch.ones(3))
