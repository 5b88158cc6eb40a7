"""Trained models outside their run: loading, prediction and export."""
