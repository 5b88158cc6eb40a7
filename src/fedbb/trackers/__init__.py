"""Trackers: a run's figures, handed on to TensorBoard, MLflow or Weights & Biases."""
