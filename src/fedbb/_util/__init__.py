"""Small helpers for files, names and text."""
