"""Trained models outside their run: loading, prediction for files, and export."""

from fedbb.inference.export import export_model
from fedbb.inference.model import InferenceModel, load_model
from fedbb.inference.prediction import (
    Predictions,
    ReadOptions,
    Samples,
    predict,
    read_samples,
    write_csv,
)

__all__ = [
    "InferenceModel",
    "Predictions",
    "ReadOptions",
    "Samples",
    "export_model",
    "load_model",
    "predict",
    "read_samples",
    "write_csv",
]
