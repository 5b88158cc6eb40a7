"""How much each client counts, how models are merged, and which updates are valid."""
