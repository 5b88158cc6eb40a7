"""Trackers: export of a run's measures to TensorBoard, MLflow or Weights & Biases."""

from fedbb.trackers.export import export
from fedbb.trackers.registry import TrackedRun, Tracker, make_tracker

__all__ = ["TrackedRun", "Tracker", "export", "make_tracker"]
