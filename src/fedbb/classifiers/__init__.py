"""The last linear layer from sums over clients: closed forms, virtual features, re-training."""
