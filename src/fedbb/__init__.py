"""Federated learning when labels are uneven."""
