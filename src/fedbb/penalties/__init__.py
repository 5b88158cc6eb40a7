"""What else local training may be pulled towards."""
