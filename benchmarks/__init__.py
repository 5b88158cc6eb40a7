"""Measurements of fedbb beside bare PyTorch, beside other frameworks, and beside itself."""
