"""Networks: the built-in ones by name, and what a network of one's own may return."""

from fedbb.models.base import NetworkModule, Outputs
from fedbb.models.registry import MODELS, build_model

__all__ = ["MODELS", "NetworkModule", "Outputs", "build_model"]
