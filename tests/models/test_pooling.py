"""The maximum of 2×2 pixels: torch's own values and gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from fedbb.models.pooling import LEAST, max_pool

MANY = LEAST // 4
"""Images of 2×2 pixels or more that make enough numbers for the faster way."""


def images_with_ties(shape: tuple[int, ...], seed: int, numbers: int = 3) -> Tensor:
    """Return images of so few different values that most squares hold their maximum twice."""
    drawn = torch.randint(0, numbers, shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(torch.float32) - 1


def pooled(function, images: Tensor) -> tuple[Tensor, Tensor]:
    images = images.clone().requires_grad_()
    result = function(images)
    weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(0))
    (gradient,) = torch.autograd.grad(result, images, weights)
    return result.detach(), gradient


def torch_pool(images: Tensor) -> Tensor:
    return F.max_pool2d(images, kernel_size=2)


@given(
    height=st.integers(2, 9),
    width=st.integers(2, 9),
    channels=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_values_and_gradients_are_those_of_torch_to_the_bit(height, width, channels, seed):
    images = images_with_ties((MANY // channels + 1, channels, height, width), seed)
    assert images.numel() >= LEAST
    assert "MaxPoolBackward" in type(max_pool(images.clone().requires_grad_()).grad_fn).__name__
    for ours, theirs in zip(pooled(max_pool, images), pooled(torch_pool, images), strict=True):
        assert torch.equal(ours, theirs)


def test_of_two_equal_pixels_the_first_in_the_order_of_rows_gets_the_gradient():
    # Upper right and lower left are equal: by columns the lower left one would come first.
    square = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).expand(MANY, 1, 2, 2).clone().requires_grad_()
    max_pool(square).sum().backward()
    assert square.grad[0, 0].tolist() == [[0, 1], [0, 0]]


@pytest.mark.parametrize("number", [3, 4000])
def test_without_gradients_the_values_are_those_of_torch(number):
    images = images_with_ties((number, 2, 5, 6), seed=1)
    with torch.inference_mode():
        assert torch.equal(max_pool(images), torch_pool(images))
    assert torch.equal(max_pool(images), torch_pool(images))


@pytest.mark.parametrize("precision", [torch.float64, torch.bfloat16])
def test_other_precisions_and_memory_formats_have_torchs_values_and_gradients(precision):
    images = images_with_ties((600, 4, 6, 6), seed=2).to(precision)
    last = images.contiguous(memory_format=torch.channels_last)
    for given_images in (images, last, images.transpose(2, 3)):
        for ours, theirs in zip(
            pooled(max_pool, given_images), pooled(torch_pool, given_images), strict=True
        ):
            assert ours.dtype == precision
            assert torch.equal(ours, theirs)


def test_the_gradient_of_a_gradient_is_that_of_torch():
    images = torch.randn(MANY, 1, 2, 2, generator=torch.Generator().manual_seed(3))
    twice = []
    for function in (max_pool, torch_pool):
        inputs = images.clone().requires_grad_()
        (first,) = torch.autograd.grad((function(inputs) ** 3).sum(), inputs, create_graph=True)
        (second,) = torch.autograd.grad((first**2).sum(), inputs)
        twice.append(second)
    assert torch.equal(*twice)
    assert twice[0].abs().sum() > 0


def test_a_number_that_is_none_is_not_hidden():
    images = torch.zeros(MANY, 1, 2, 2)
    images[0, 0, 1, 1] = float("nan")
    assert max_pool(images)[0].isnan().all()
    assert max_pool(images.requires_grad_())[0].isnan().all()


def test_an_exported_network_holds_torchs_own_operation():
    class Pool(torch.nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return max_pool(images)

    program = torch.export.export(Pool().eval(), (torch.zeros(2, 3, 8, 8),))
    assert "max_pool2d" in str(program.graph)
