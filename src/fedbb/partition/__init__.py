"""Ways to divide examples among clients."""
