"""The federated rounds: choose clients, train, aggregate, evaluate."""
