"""Local training: one loop for every method."""
