"""Losses: frozen specs that bind to a client's counts, and drop-in modules."""
