"""Secure aggregation across Flower sites."""
