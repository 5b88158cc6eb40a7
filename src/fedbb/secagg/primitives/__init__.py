"""Keys, secret sharing, masks and fixed-point numbers."""
