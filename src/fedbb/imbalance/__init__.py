"""The paper's three levels of imbalance: cases of one class, classes of one client, clients."""
