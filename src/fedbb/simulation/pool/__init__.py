"""Clients that train in worker processes."""
