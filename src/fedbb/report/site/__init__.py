"""Removed with the next step."""
