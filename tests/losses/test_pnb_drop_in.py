"""PNBLoss as a part of ordinary PyTorch code: precision, compiling, saving, devices, training."""

import copy
import shutil

import pytest
import torch
from torch import Tensor, nn

from fedbb.losses.pnb import PNBLoss
from fedbb.methods import build_method

TASKS = ("multiclass", "multilabel")
BUFFERS = ["alpha_positive", "alpha_negative", "positive_weight", "negative_weight"]
NAN = float("nan")


def make(task: str, **options) -> PNBLoss:
    return PNBLoss([90, 9, 1], samples=100, task=task, **options)


def batch(task: str) -> tuple[Tensor, Tensor]:
    """Return logits and targets, one of them unknown."""
    logits = torch.linspace(-3, 3, 12).reshape(4, 3)
    if task == "multiclass":
        return logits, torch.tensor([0, 2, 1, -100])
    return logits, torch.tensor([[1.0, 0, 0], [0, 1, NAN], [1, 0, 1], [0, 0, 0]])


@pytest.mark.parametrize("task", TASKS)
def test_autocast_scores_in_single_precision(task):
    _, targets = batch(task)
    linear, inputs = nn.Linear(5, 3), torch.linspace(-1, 1, 20).reshape(4, 5)
    with torch.autocast("cpu", torch.bfloat16):
        logits = linear(inputs)
        value = make(task)(logits, targets)
    assert (logits.dtype, value.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(value, make(task)(logits.float(), targets))
    value.backward()
    assert torch.isfinite(linear.weight.grad).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("task", TASKS)
def test_half_precision_logits_are_scored_in_single_precision(task, dtype):
    logits, targets = batch(task)
    half = logits.to(dtype).requires_grad_()
    value = make(task)(half, targets)
    assert value.dtype == torch.float32
    value.backward()
    assert half.grad.dtype == dtype
    assert torch.isfinite(half.grad).all()


@pytest.mark.parametrize("task", TASKS)
def test_a_half_precision_module_still_scores_in_the_precision_of_the_logits(task):
    logits, targets = batch(task)
    value = make(task).to(torch.bfloat16)(logits, targets)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, make(task)(logits, targets), rtol=0.01, atol=0.01)


@pytest.mark.parametrize("task", TASKS)
def test_double_precision_follows_the_logits(task):
    logits, targets = batch(task)
    single, double = make(task), make(task).to(torch.float64)
    assert double.positive_weight.dtype == torch.float64
    assert single(logits.double(), targets).dtype == torch.float64
    assert double(logits, targets).dtype == torch.float32
    torch.testing.assert_close(double(logits.double(), targets).float(), single(logits, targets))


def check_compiled(task: str, backend: str) -> None:
    torch._dynamo.reset()
    loss, (logits, targets) = make(task), batch(task)
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    eager_logits, traced_logits = (logits.clone().requires_grad_() for _ in range(2))
    expected, found = loss(eager_logits, targets), compiled(traced_logits, targets)
    torch.testing.assert_close(found, expected)
    expected.backward()
    found.backward()
    torch.testing.assert_close(traced_logits.grad, eager_logits.grad)


@pytest.mark.parametrize("task", TASKS)
def test_compiles_to_one_graph_with_the_same_values(task):
    check_compiled(task, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
def test_compiles_to_machine_code_with_the_same_values(task):
    if not any(map(shutil.which, ("g++", "clang++"))):
        pytest.skip("torch.compile's own backend needs a C++ compiler, and none is installed")
    check_compiled(task, "inductor")


@pytest.mark.parametrize("task", TASKS)
def test_result_lives_on_the_device_of_the_logits(task):
    logits, targets = batch(task)
    elsewhere = make(task)(logits.to("meta"), targets.to("meta"))
    assert elsewhere.device.type == "meta"
    assert {buffer.device.type for buffer in make(task).to("meta").buffers()} == {"meta"}


def test_weights_are_buffers_that_need_no_gradient_and_nothing_is_trained():
    loss = make("multilabel")
    assert [name for name, _ in loss.named_buffers()] == BUFFERS
    assert not any(buffer.requires_grad for buffer in loss.buffers())
    assert list(loss.parameters()) == []


def test_a_deep_copy_is_equal_and_independent():
    loss, (logits, targets) = make("multilabel"), batch("multilabel")
    before = loss(logits, targets)
    twin = copy.deepcopy(loss)
    assert torch.equal(twin(logits, targets), before)
    twin.positive_weight.zero_()
    assert torch.equal(loss(logits, targets), before)


def test_printed_form_names_task_and_hyper_parameters():
    assert repr(make("multilabel", mu="unit", reduction="sum")) == (
        "PNBLoss(task=multilabel, PNB(beta=0.9999, tau=1.0, mu='unit', class_factor='alpha', "
        "alpha_min=0.0), reduction=sum)"
    )


@pytest.mark.parametrize("task", TASKS)
def test_reductions_agree(task):
    logits, targets = batch(task)
    each, total, mean = (
        make(task, reduction=reduction)(logits, targets) for reduction in ("none", "sum", "mean")
    )
    assert each.shape == targets.shape
    torch.testing.assert_close(each.sum(), total)
    known = 3 if task == "multiclass" else 11
    torch.testing.assert_close(total / known, mean)


@pytest.mark.parametrize("task", TASKS)
def test_a_plain_training_loop_learns_with_it(task):
    inputs = torch.eye(3).repeat_interleave(torch.tensor([20, 6, 2]), dim=0)
    targets = inputs.argmax(dim=1) if task == "multiclass" else inputs
    model, loss = nn.Linear(3, 3), PNBLoss.from_targets(targets, task=task, mu=4.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    first = loss(model(inputs), targets).item()
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(model(inputs), targets)
        value.backward()
        optimizer.step()
    assert value.item() < first / 10
    assert torch.equal(model(inputs).argmax(dim=1), inputs.argmax(dim=1))


def test_the_drop_in_keeps_the_learning_rate_and_the_method_keeps_the_papers_scale():
    counts = [900, 90, 10]
    loss = PNBLoss(counts)
    logits, labels = torch.zeros(1000, 3), torch.arange(3).repeat_interleave(torch.tensor(counts))
    plain = torch.nn.functional.cross_entropy(logits, labels)
    assert loss(logits, labels).item() == pytest.approx(plain.item(), rel=1e-5)
    assert loss.spec.mu == "unit"
    assert build_method("fedbb", {}).loss.mu == 4.0
