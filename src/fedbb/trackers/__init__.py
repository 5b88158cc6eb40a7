"""Trackers: export of a run's measures to TensorBoard, MLflow or Weights & Biases."""
