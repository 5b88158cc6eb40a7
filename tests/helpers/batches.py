"""Batches of logits and targets that losses are tried on."""

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor, nn

from fedbb.records import LabelCounts, Task

NAN = float("nan")


@st.composite
def batches(
    draw: st.DrawFn, task: str, limit: float = 20.0, dtype: str = "float64"
) -> tuple[Tensor, Tensor]:
    """Draw logits (N, C) and targets that fit the task."""
    samples, classes = draw(st.tuples(st.integers(1, 6), st.integers(2, 4)))
    elements = st.floats(-limit, limit, width=32)
    logits = draw(hnp.arrays(dtype, (samples, classes), elements=elements))
    shape = (samples,) if task == "multiclass" else (samples, classes)
    highest = classes - 1 if task == "multiclass" else 1
    targets = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, highest)))
    return torch.from_numpy(logits), torch.from_numpy(targets)


def holey_batch(task: str) -> tuple[Tensor, Tensor]:
    """Return four rows of three logits and their targets, one of which is unknown."""
    logits = torch.linspace(-3, 3, 12).reshape(4, 3)
    if task == "multiclass":
        return logits, torch.tensor([0, 2, 1, -100])
    return logits, torch.tensor([[1.0, 0, 0], [0, 1, NAN], [1, 0, 1], [0, 0, 0]])


def value_and_slope(loss: nn.Module, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss and its gradient."""
    point = logits.detach().clone().requires_grad_()
    value = loss(point, targets)
    value.backward()
    return value.detach(), point.grad


def equal_bits(first: nn.Module, second: nn.Module, logits: Tensor, targets: Tensor) -> bool:
    """Tell whether two losses agree to the bit, gradients included."""
    one, two = (value_and_slope(loss, logits, targets) for loss in (first, second))
    return all(torch.equal(*pair) for pair in zip(one, two, strict=True))


def counts_of(*positive: float) -> LabelCounts:
    """Return the counts of a multi-class client."""
    held = np.array(positive, dtype=np.float64)
    return LabelCounts(held, held.sum() - held, int(held.sum()))


def check_drop_in(loss: nn.Module, task: Task | str) -> None:
    """Autocast, half precision, double precision, another device, one compiled graph."""
    logits, targets = holey_batch(task)
    expected, slope = value_and_slope(loss, logits, targets)
    linear = nn.Linear(5, 3)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = linear(torch.linspace(-1, 1, 20).reshape(4, 5))
        value = loss(outputs, targets)
    assert (outputs.dtype, value.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(value, loss(outputs.float(), targets))
    for dtype in (torch.float16, torch.bfloat16):
        value, rounded = value_and_slope(loss, logits.to(dtype), targets)
        assert (value.dtype, rounded.dtype) == (torch.float32, dtype)
        torch.testing.assert_close(value, expected, rtol=0.02, atol=0.02)
        assert torch.isfinite(rounded).all()
    assert loss(logits.double(), targets).dtype == torch.float64
    torch.testing.assert_close(loss(logits.double(), targets).float(), expected)
    assert loss(logits.to("meta"), targets.to("meta")).device.type == "meta"
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    found = value_and_slope(compiled, logits, targets)
    torch.testing.assert_close(found, (expected, slope))
