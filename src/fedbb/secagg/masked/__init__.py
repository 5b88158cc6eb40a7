"""Secure aggregation by pairwise masks (Bonawitz et al., 2017)."""
