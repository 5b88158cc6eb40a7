"""Byzantine-robust aggregation rules."""
