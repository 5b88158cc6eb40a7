"""Secure aggregation by BFV homomorphic encryption."""
