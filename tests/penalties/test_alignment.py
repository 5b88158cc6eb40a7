import pytest
import torch
import torch.nn.functional as F

from fedbb.errors import RecipeError
from fedbb.models.base import NetworkModule
from fedbb.models.registry import build_model
from fedbb.penalties.alignment import Alignment, top_singular_value, transmitting_matrix
from fedbb.penalties.base import Anchors, Step
from fedbb.rng import torch_stream
from fedbb.state import digest, snapshot
from helpers.toy import toy_network
from reference.transmitting import transmitting_matrix as slow_matrix


def drawn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def bound(model):
    return Alignment().bind(Anchors(model, snapshot(model), None))


def test_the_transmitting_matrix_equals_a_slow_reference():
    before, after = drawn(2, 3, 4, 4), drawn(2, 5, 4, 4)
    fast = transmitting_matrix(before, after)
    for sample in range(2):
        slow = slow_matrix(before[sample].tolist(), after[sample].tolist())
        assert torch.allclose(fast[sample], torch.tensor(slow, dtype=torch.float64))


def test_larger_maps_are_pooled_to_the_size_of_the_smaller():
    before, after = drawn(2, 3, 8, 8), drawn(2, 5, 4, 4)
    pooled = F.avg_pool2d(before, 2)
    assert torch.allclose(transmitting_matrix(before, after), transmitting_matrix(pooled, after))


def test_top_singular_values_are_within_a_percent_where_the_spectrum_is_separated():
    left, right = (torch.linalg.qr(drawn(6, 6))[0] for _ in range(2))
    matrix = left @ torch.diag(torch.tensor([5.0, 2.0, 1, 1, 1, 1], dtype=torch.float64)) @ right
    assert top_singular_value(matrix[None]).item() == pytest.approx(5.0, rel=0.01)


def test_close_values_are_not_told_apart_in_ten_turns():
    # M = diag(4, 3.9): ten turns from (1, 1) end at √3.9616 = 1.9904, not at 2.
    matrix = torch.diag(torch.tensor([4.0, 3.9], dtype=torch.float64).sqrt())
    assert top_singular_value(matrix[None]).item() == pytest.approx(1.9904, abs=1e-4)


def test_dead_features_give_zero_and_no_nan():
    matrix = torch.zeros(2, 3, 3, requires_grad=True)
    value = top_singular_value(matrix).sum()
    value.backward()
    assert value.item() < 1e-5
    assert torch.isfinite(matrix.grad).all()


def test_the_term_is_always_mu_times_the_loss():
    model = toy_network()
    images = torch.randn(6, 1, 4, 4)
    for loss in (0.3, 2.0):
        value = bound(model)(Step(images, model(images), loss))
        assert value.item() == pytest.approx(0.45 * loss, rel=1e-5)


def test_only_the_leading_channels_of_the_last_stage_are_pulled():
    with torch_stream(0, "alignment"):
        model = build_model("resnet11", 3, (1, 8, 8))
        images = torch.randn(4, 1, 8, 8)
    before = digest(snapshot(model))
    outputs = model.eval()(images)
    bound(model)(Step(images, outputs, 1.0)).backward()
    assert digest(snapshot(model)) == before
    pulled = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert pulled
    assert all(name.startswith("layer3.") for name in pulled)
    first = pulled["layer3.0.conv1.weight"]
    assert first[:16, :32].abs().sum() > 0
    assert first[16:].abs().sum() == 0
    assert first[:, 32:].abs().sum() == 0


@pytest.mark.parametrize("options", [{"mu": -1.0}, {"width": 1.0}, {"width": 0.0}, {"clip": 0.0}])
def test_bad_values_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Alignment(**options)


def test_a_network_without_a_tail_is_refused_by_name():
    with pytest.raises(RecipeError, match=r"FedAlign needs a network .* NetworkModule"):
        bound(NetworkModule())
