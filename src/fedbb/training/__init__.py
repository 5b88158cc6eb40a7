"""Local training: settings, data of a client, optimizer, and the one training loop."""
