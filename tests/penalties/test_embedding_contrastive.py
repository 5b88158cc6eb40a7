import math

import pytest
import torch

from fedbb.penalties.base import Anchors, Step
from fedbb.penalties.embedding import Contrastive, contrast
from fedbb.state import digest, snapshot
from helpers.toy import toy_network
from reference.contrast import contrast as slow_contrast


def rows(cosine):
    return torch.tensor([[cosine, math.sqrt(1 - cosine**2)]])


def step_of(model, images):
    return Step(images, model(images), 0.0)


def test_the_known_value_of_cosines_point_eight_and_point_three():
    # ln(1 + e^((0.3 − 0.8) / 0.5)) = ln(1 + 1/e) = 0.313262
    value = contrast(torch.tensor([[1.0, 0.0]]), rows(0.8), rows(0.3), temperature=0.5)
    assert value.item() == pytest.approx(0.313262, abs=1e-6)


@pytest.mark.parametrize("samples", [1, 5])
def test_the_contrast_equals_a_slow_reference(samples):
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(3, samples, 7, generator=generator, dtype=torch.float64)
    expected = slow_contrast(*vectors.tolist(), 0.5)
    assert contrast(*vectors, temperature=0.5).item() == pytest.approx(expected, rel=1e-12)


def test_a_first_participation_contributes_nothing():
    model = toy_network()
    penalty = Contrastive().bind(Anchors(model, snapshot(model), previous=None))
    assert penalty(step_of(model, torch.randn(4, 1, 4, 4))).item() == 0


def test_equal_models_give_ln_two_and_no_gradient():
    model = toy_network().eval()
    state = snapshot(model)
    penalty = Contrastive().bind(Anchors(model, state, state))
    value = penalty(step_of(model, torch.randn(4, 1, 4, 4)))
    assert value.item() == pytest.approx(math.log(2))
    value.backward()
    assert all(p.grad is None or p.grad.abs().max() < 1e-6 for p in model.parameters())


def test_features_are_pulled_to_the_global_model_and_pushed_from_the_clients_previous_one():
    model, start, previous = (toy_network(seed) for seed in range(3))
    images = torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    anchors = Anchors(model, snapshot(start), snapshot(previous))
    own = model(images)
    value = Contrastive(mu=3.0, temperature=0.7).bind(anchors)(Step(images, own, 0.0))
    near, far = (network.eval()(images).embedding for network in (start, previous))
    expected = 3.0 * slow_contrast(*(part.tolist() for part in (own.embedding, near, far)), 0.7)
    assert value.item() == pytest.approx(expected, rel=1e-5)


def test_the_gradient_goes_through_the_trained_network_alone():
    model, other = toy_network(0), toy_network(1)
    start, previous = snapshot(toy_network(2)), snapshot(other)
    before = digest(start), digest(previous)
    penalty = Contrastive().bind(Anchors(model, start, previous))
    penalty(step_of(model, torch.randn(6, 1, 4, 4))).backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.first.parameters())
    assert (digest(start), digest(previous)) == before


def test_it_asks_for_a_head_and_a_memory():
    assert Contrastive().needs.projection
    assert Contrastive().needs.client_state


@pytest.mark.parametrize("options", [{"mu": -1.0}, {"temperature": 0.0}])
def test_bad_values_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Contrastive(**options)
