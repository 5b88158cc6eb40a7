"""Every public loss in the place of torch's: options, shapes, targets, compilers, checkpoints."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedbb import losses
from fedbb.losses.class_balanced import CBLoss
from fedbb.losses.fedbb_plus import FedBBPlusLoss
from fedbb.losses.focal import FocalLoss
from fedbb.losses.logit_adjusted import LogitAdjustedLoss
from fedbb.losses.logit_calibrated import FedLCLoss
from fedbb.losses.pnb import PNBLoss
from helpers.batches import value_and_slope
from helpers.cover import few

NAN = float("nan")
SHAPES = [(6, 3), (4, 3, 5), (2, 3, 4, 5)]
OPTIONS = [
    {},
    {"reduction": "sum"},
    {"reduction": "none"},
    {"label_smoothing": 0.2},
    {"ignore_index": 1, "label_smoothing": 0.2},
]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def neutral(task: str, classes: int = 3) -> dict:
    """Return builders of every loss with counts and options that re-weight nothing."""
    even, options = [50] * classes, {"task": task}
    if task == "multilabel":
        options["samples"] = 100
    builders = {
        "PNB": lambda **more: PNBLoss(even, **options, **more),
        "CB": lambda **more: CBLoss(even, **options, **more),
        "Focal": lambda **more: FocalLoss(gamma=0.0, task=task, **more),
        "LogitAdjusted": lambda **more: LogitAdjustedLoss(even, **options, **more),
        "FedBBPlus": lambda **more: FedBBPlusLoss(even, **options, **more),
        "FedLC": lambda **more: FedLCLoss(even, **more),
    }
    if task == "multilabel":
        del builders["FedLC"]
    return builders


def skewed(task: str, **more) -> dict[str, nn.Module]:
    """Return every loss on counts that are not equal."""
    counts, options = [70, 20, 10], {"task": task, "samples": 100, **more}
    made = {
        "PNB": PNBLoss(counts, **options),
        "CB": CBLoss(counts, **options),
        "CB sigmoid": CBLoss(counts, form="sigmoid", **options),
        "CB focal": CBLoss(counts, form="focal", **options),
        "Focal": FocalLoss(task=task, **more),
        "LogitAdjusted": LogitAdjustedLoss(counts, **options),
        "FedBBPlus": FedBBPlusLoss(counts, label_margin=3.0, beta=0.9, **options),
    }
    return made if task == "multilabel" else made | {"FedLC": FedLCLoss(counts, **more)}


NAMES = list(skewed("multiclass"))
LABEL_NAMES = list(skewed("multilabel"))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def class_numbers(shape: tuple[int, ...]) -> Tensor:
    """Return targets for logits of this shape, classes in turn."""
    places = (shape[0], *shape[2:])
    return torch.arange(torch.Size(places).numel()).reshape(places) % shape[1]


def same(one: nn.Module, two: nn.Module, input: Tensor, target: Tensor, other=None) -> None:
    """Check that values and gradients agree; `other` is the second loss's target."""
    pairs = []
    for loss, labels in ((one, target), (two, target if other is None else other)):
        point = input.detach().clone().requires_grad_()
        value = loss(point, labels)
        value.sum().backward()
        pairs.append((value.detach(), point.grad))
    torch.testing.assert_close(*pairs)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", neutral("multiclass"))
def test_with_equal_counts_each_is_torchs_cross_entropy(name, shape, options):
    loss, torchs = neutral("multiclass")[name](**options), nn.CrossEntropyLoss(**options)
    same(loss, torchs, normal(*shape), class_numbers(shape))


@pytest.mark.parametrize("options", OPTIONS[:4], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", neutral("multiclass"))
def test_with_equal_counts_each_takes_class_probabilities_as_torch_does(name, shape, options):
    loss, torchs = neutral("multiclass")[name](**options), nn.CrossEntropyLoss(**options)
    same(loss, torchs, normal(*shape), normal(*shape, seed=1).softmax(dim=1))


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
@pytest.mark.parametrize("shape", [(6,), *SHAPES], ids=str)
@pytest.mark.parametrize("name", neutral("multilabel"))
def test_with_equal_counts_each_is_torchs_bce_also_on_soft_labels(name, shape, options):
    loss = neutral("multilabel", classes=shape[1] if len(shape) > 1 else 1)[name](**options)
    same(loss, nn.BCEWithLogitsLoss(**options), normal(*shape), normal(*shape, seed=1).sigmoid())


@pytest.mark.parametrize("options", OPTIONS[:3], ids=str)
@pytest.mark.parametrize("name", neutral("multiclass"))
def test_one_logit_for_two_classes_is_bce(name, options):
    loss, torchs = neutral("multiclass", 2)[name](**options), nn.BCEWithLogitsLoss(**options)
    input, target = normal(6), torch.tensor([0, 1, 1, 0, 1, 0])
    same(loss, torchs, input, target, target.float())
    soft = normal(6, seed=1).sigmoid()
    same(loss, torchs, input, soft)


@pytest.mark.parametrize("name", ["PNB", "CB"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_weights_act_as_torchs_but_the_mean_divides_by_the_known_labels(name, smoothing):
    loss = skewed("multiclass", reduction="sum", label_smoothing=smoothing)[name]
    weight = dict(loss.named_buffers())["positive_weight" if name == "PNB" else "weight"]
    torchs = nn.CrossEntropyLoss(weight, reduction="sum", label_smoothing=smoothing)
    input, target = normal(4, 3, 5), class_numbers((4, 3, 5))
    target[0, 0] = -100
    same(loss, torchs, input, target)
    same(loss, torchs, input, normal(4, 3, 5, seed=2).softmax(dim=1))
    mean = skewed("multiclass", label_smoothing=smoothing)[name]
    torch.testing.assert_close(mean(input, target), loss(input, target) / 19)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_class_numbers_are_of_any_integer_type(name, dtype):
    loss, target = skewed("multiclass", ignore_index=2)[name], class_numbers((6, 3))
    assert torch.equal(loss(normal(6, 3), target.to(dtype)), loss(normal(6, 3), target))


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS], ids=str)
@pytest.mark.parametrize("name", LABEL_NAMES)
def test_labels_are_of_any_type(name, dtype):
    loss, target = skewed("multilabel")[name], (normal(6, 3, seed=1) > 0)
    assert torch.equal(loss(normal(6, 3), target.to(dtype)), loss(normal(6, 3), target.float()))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("name", NAMES)
def test_one_hot_probabilities_are_class_numbers(name, smoothing):
    loss = skewed("multiclass", reduction="none", label_smoothing=smoothing)[name]
    target = class_numbers((4, 3, 5))
    rows = F.one_hot(target, 3).movedim(-1, 1).float()
    same(loss, loss, 3 * normal(4, 3, 5), target, rows)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
@pytest.mark.parametrize("name", NAMES)
def test_further_axes_are_scored_place_by_place(name, task, smoothing):
    if name == "FedLC" and task == "multilabel":
        return
    loss = skewed(task, reduction="none", label_smoothing=smoothing)[name]
    input = normal(2, 3, 4)
    target = class_numbers((2, 3, 4)) if task == "multiclass" else (input > 0.3).float()
    each = loss(input, target)
    for place in range(4):
        torch.testing.assert_close(each[..., place], loss(input[..., place], target[..., place]))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("name", NAMES)
def test_unknown_rows_of_probabilities_count_nowhere(name, smoothing):
    loss = skewed("multiclass", label_smoothing=smoothing)[name]
    input, target = normal(4, 3), normal(4, 3, seed=1).softmax(dim=1)
    target[3, 1] = NAN
    value, slope = value_and_slope(loss, input, target)
    torch.testing.assert_close(value, loss(input[:3], target[:3]))
    assert torch.all(slope[3] == 0)
    assert torch.isfinite(slope).all()


@pytest.mark.parametrize("name", LABEL_NAMES)
def test_an_integer_marks_an_unknown_label_as_nan_does(name):
    loss = skewed("multilabel", ignore_index=-1, label_smoothing=0.1)[name]
    target = torch.tensor([[1, 0, -1], [-1, 1, 0]])
    holes = target.float().masked_fill(target < 0, NAN)
    same(loss, loss, normal(2, 3), target, holes)


@pytest.mark.parametrize("name", LABEL_NAMES)
def test_smoothing_moves_labels_towards_one_half(name):
    plain, smooth = (skewed("multilabel", label_smoothing=s)[name] for s in (0.0, 0.2))
    target = (normal(6, 3, seed=1) > 0).float()
    same(smooth, plain, normal(6, 3), target, 0.8 * target + 0.1)


@pytest.mark.parametrize("name", ["FedLC", "LogitAdjusted", "FedBBPlus"])
def test_smoothing_spreads_nothing_over_absent_classes(name):
    classes = {"FedLC": FedLCLoss, "LogitAdjusted": LogitAdjustedLoss, "FedBBPlus": FedBBPlusLoss}
    whole, rest = (classes[name](counts, label_smoothing=0.3) for counts in ([70, 0, 10], [70, 10]))
    input, target = normal(4, 3), torch.tensor([0, 1, 1, 0])
    value, slope = value_and_slope(whole, input, 2 * target)
    expected, of_rest = value_and_slope(rest, input[:, [0, 2]], target)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(slope[:, [0, 2]], of_rest)
    assert torch.all(slope[:, 1] == 0)


@pytest.mark.parametrize("name", ["LogitAdjusted", "FedBBPlus"])
def test_smoothing_leaves_labels_of_one_kind_alone(name):
    build = {"LogitAdjusted": LogitAdjustedLoss, "FedBBPlus": FedBBPlusLoss}[name]
    loss = build([70, 0], samples=100, task="multilabel", label_smoothing=0.3)
    target = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    assert loss(normal(2, 2), target).item() < 10


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
@pytest.mark.parametrize("name", NAMES)
def test_arguments_have_the_names_of_torchs(name, task):
    if name == "FedLC" and task == "multilabel":
        return
    loss, input = skewed(task)[name], normal(6, 3)
    target = class_numbers((6, 3)) if task == "multiclass" else input.sigmoid()
    assert torch.equal(loss(input=input, target=target), loss(input, target))


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_no_loss_adds_to_the_checkpoint_of_a_model(task):
    for loss in skewed(task).values():
        assert loss.state_dict() == {}
        model = nn.ModuleDict({"net": nn.Linear(2, 3), "loss": loss})
        model.load_state_dict(nn.ModuleDict({"net": nn.Linear(2, 3)}).state_dict())


def cases(name: str):
    """Yield the loss with a batch for each form of target."""
    yield skewed("multiclass")[name], normal(4, 3), torch.tensor([0, 2, 1, -100])
    smooth = skewed("multiclass", label_smoothing=0.1)[name]
    yield smooth, normal(2, 3, 4), normal(2, 3, 4, seed=1).softmax(dim=1)
    if name in LABEL_NAMES:
        yield skewed("multilabel")[name], normal(4, 3), torch.tensor([[1.0, 0, NAN]]).repeat(4, 1)


@pytest.mark.parametrize("name", few(NAMES, 1))
def test_each_compiles_to_one_graph(name):
    for loss, input, target in cases(name):
        torch._dynamo.reset()
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        same(compiled, loss, input, target)


@pytest.mark.parametrize("name", few(NAMES, 3))
def test_each_is_exported(name):
    for loss, input, target in cases(name):
        program = torch.export.export(loss, (input, target))
        torch.testing.assert_close(program.module()(input, target), loss(input, target))


@pytest.mark.parametrize("name", NAMES)
def test_each_is_scripted(name):
    for loss, input, target in cases(name):
        with warnings.catch_warnings():
            # torch calls TorchScript itself deprecated; users of it still have their models.
            warnings.simplefilter("ignore", DeprecationWarning)
            scripted = torch.jit.script(loss)
        same(scripted, loss, input, target)
        same(scripted, loss, input.half().float(), target)


def test_a_scripted_loss_refuses_a_wrong_shape_too():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(PNBLoss([3, 1]))
    with pytest.raises(torch.jit.Error, match="the loss knows 2 classes, the logits 3"):
        scripted(torch.zeros(2, 3), torch.tensor([0, 1]))


def test_the_printed_form_names_options_that_are_not_the_defaults():
    loss = FocalLoss(label_smoothing=0.1, ignore_index=255)
    assert repr(loss).endswith("reduction=mean, label_smoothing=0.1, ignore_index=255)")


def test_the_package_exports_its_public_names():
    assert set(losses.__all__) == {name for name in vars(losses) if _is_public(name)}
    assert losses.PNBLoss is PNBLoss


def _is_public(name: str) -> bool:
    value = getattr(losses, name)
    return not name.startswith("_") and getattr(value, "__module__", "").startswith("fedbb.")
