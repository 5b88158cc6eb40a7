"""How much each client counts, and how models are joined."""
