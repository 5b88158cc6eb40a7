"""Networks: any `nn.Module`, the built-in ones, and weights from files."""

from fedbb.models.base import NetworkModule, Outputs, run_network, set_classifier
from fedbb.models.registry import MODELS, ModelSource, build_model, finish_model, resolve_model
from fedbb.models.weights import load_weights

__all__ = [
    "MODELS",
    "ModelSource",
    "NetworkModule",
    "Outputs",
    "build_model",
    "finish_model",
    "load_weights",
    "resolve_model",
    "run_network",
    "set_classifier",
]
